"""The page of one observed compile that was not bisected: a case, or a graph of `check`.

Nothing was left out of the compile, so the first wrong step is a suspect and not a proved culprit.
"""

from collections.abc import Sequence
from pathlib import Path

from ctk.compiler.errors import count_of
from ctk.toolkit.case.admission import command_on
from ctk.toolkit.case.case_replacement import whole_case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.manifest import read_manifest
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.compile_log.trace.document import Trace, TraceStep
from ctk.toolkit.operations.pages.case_sections import (
    environment_section,
    event_sections,
    trust_block,
)
from ctk.toolkit.operations.pages.reduction_sections import certificate_section, read_listing
from ctk.toolkit.operations.pages.sentences import sentence, what_fails
from ctk.toolkit.operations.pages.trace_sections import (
    find_focus,
    find_trace,
    place_of,
    trace_sections,
)
from ctk.toolkit.operations.report.certificate_file import CERTIFICATE
from ctk.toolkit.operations.report.phrases import PLACES
from ctk.toolkit.page.page import (
    Answers,
    Block,
    Code,
    Focus,
    Page,
    Rows,
    Section,
    section,
)

REMARKS = {
    "check": "compares every step of the compile with eager",
    "diagnose": "the culprit with its proof, and the smallest repro",
}
"""The result of a command, by its name."""

_MOST_STEPS = 1_000


def page_of_case(folder: Path) -> Page:
    """Return the page of a case folder.

    Raises:
        CaseError: Its manifest is damaged, or of another ctk.
    """
    whole = whole_case(folder)
    manifest = read_manifest(whole)
    signature = manifest.signature
    trace, why = find_trace(folder)
    focus = find_focus(trace) if trace is not None else Focus()
    operation = "check" if signature is None else "diagnose"
    steps = (NextStep(command_on(operation, folder), REMARKS[operation]),)
    graph = read_listing(whole, "graph.py")
    more: list[Section] = [section("Case", [Code("Captured graph", graph)])] if graph else []
    if (folder / CERTIFICATE).exists():
        more.append(certificate_section(folder, NextStep(command_on("minify", folder))))
    environment = environment_section(folder)
    subject = f"{manifest.name} with target {manifest.target}"
    return Page(
        subject=manifest.name,
        tone="wrong" if signature is not None else "unsure",
        badge=f"fails: {signature.kind}" if signature is not None else "no failure recorded",
        headline=f"{subject} fails ({signature.kind})"
        if signature
        else f"{subject}: no failure is recorded",
        answers=Answers(
            what_fails(signature)
            if signature is not None
            else "The case records no failure: it was not judged, or it passed.",
            where_wrong(trace, focus, signature),
            how_known(trace, "The failure was seen when the case was written."),
            steps,
        ),
        sections=(
            *([findings_section(trace)] if trace is not None else []),
            *trace_sections(trace, focus, why, NextStep(command_on("check", folder) + " --report")),
            *more,
            *event_sections(folder),
            Section(environment.title, (*environment.blocks, *trust_block(folder))),
        ),
        trace=trace,
        focus=focus,
    )


def where_wrong(trace: Trace | None, focus: Focus, signature: Signature | None) -> str:
    """Return the first wrong step of a compile, as a suspect; else the place of the failure."""
    if trace is None and signature is not None and signature.where:
        return sentence(f"In {signature.where}, the last place that was seen", is_name=True)
    if trace is None:
        return "Not known: the steps of its compile were not recorded."
    step = trace.steps[focus.step]
    if step.status != "wrong":
        return "No step of the compile makes a value wrong."
    place = place_of(trace, focus)
    program = f" Program line {place}." if place else ""
    node = f" First wrong node: {step.node}." if step.node else ""
    return f"{step.id}: {PLACES[step.stage]}.{node}{program}"


def how_known(trace: Trace | None, otherwise: str) -> str:
    """Return how the first wrong step is known: by comparison, without a proof."""
    if trace is None:
        return otherwise
    checked = [step for step in trace.steps if step.status]
    values = sum(step.compared for step in checked)
    wrong = sum(step.status == "wrong" for step in checked)
    compared = f"{count_of(values, 'value')} of {count_of(len(checked), 'step')}"
    return (
        f"{compared} were compared with eager; {count_of(wrong, 'step')} made one wrong. Nothing "
        "was left out of the compile, so this is evidence and not yet a proof."
    )


def findings_section(trace: Trace) -> Section:
    """Return the section with the result of the check of each step."""
    steps = [step for step in trace.steps if step.kind != "stage"]
    return section("Proof", _findings(steps))


def _findings(steps: Sequence[TraceStep]) -> list[Block]:
    rows = tuple(
        (step.id, step.status or "not checked", f"{step.compared:,}", _difference_of(step))
        for step in steps[:_MOST_STEPS]
    )
    wrong = frozenset(at for at, step in enumerate(steps) if step.status == "wrong")
    columns = ("step", "result", "values", "first difference, or reason")
    return [Rows("Each step, compared with eager", columns, rows, wrong, frozenset({2}))]


def _difference_of(step: TraceStep) -> str:
    return f"{step.node}: {step.mismatch}" if step.mismatch else step.reason
