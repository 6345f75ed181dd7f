"""The page of a diagnosis: written by `diagnose`, `minify` or `bisect-pass`, finished or not."""

from pathlib import Path
from shlex import quote

from ctk.compiler.errors import count_of
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.operations.pages.case_sections import environment_section, trust_block
from ctk.toolkit.operations.pages.reduction_sections import (
    certificate_section,
    reduction_section,
    repro_section,
)
from ctk.toolkit.operations.pages.sentences import (
    BADGES,
    sentence,
    tone_of,
    what_fails,
    where_of_program,
)
from ctk.toolkit.operations.pages.trace_sections import (
    find_focus,
    find_trace,
    place_of,
    trace_sections,
)
from ctk.toolkit.operations.report.as_json import CulpritRecord, Record, read_json
from ctk.toolkit.operations.report.as_text import facts, headline
from ctk.toolkit.operations.report.next_steps import next_steps
from ctk.toolkit.operations.report.phrases import PLACES, VERDICTS
from ctk.toolkit.operations.session.operation_listing import is_done
from ctk.toolkit.oracle.answers.resume_command import other_command, resume_hint
from ctk.toolkit.page.page import (
    Answers,
    Block,
    Code,
    Facts,
    Focus,
    Page,
    Section,
    section,
)

_IN_ANSWERS = ("next", "minimal", "repro", "cost", "code", "")
"""Labels of the text form that the page shows at other places."""


def page_of_diagnosis(folder: Path) -> Page:
    """Return the page of a folder with a diagnosis.

    Raises:
        CaseError: Its `diagnosis.json` is damaged, or of another ctk.
    """
    record = read_json(folder)
    trace, why = find_trace(folder)
    focus = find_focus(trace, record.culprit) if trace is not None else Focus()
    minimal, given = _smallest(record, folder), folder / "case"
    again = NextStep(_again(folder), "records the compile")
    shown = given if given.is_dir() else minimal
    place = place_of(trace, focus) if trace is not None else ""
    return Page(
        subject=record.case,
        tone=tone_of(record.verdict),
        badge=_badge(record),
        headline=headline(record),
        answers=_answers(record, folder, place),
        sections=(
            _proof(record, folder),
            *trace_sections(trace, focus, why, again),
            reduction_section(folder, NextStep(_again(folder, "minify"), "reduces the case")),
            certificate_section(
                minimal, NextStep(_again(folder, "minify"), "reduces the case to the end")
            ),
            _repro(record, folder, again),
            _with_trust(environment_section(shown), shown),
        ),
        trace=trace,
        focus=focus,
    )


def _badge(record: Record) -> str:
    kind = record.signature.kind if record.signature is not None else ""
    tone = tone_of(record.verdict)
    unfinished = "" if record.state == "finished" else ", unfinished"
    return f"{BADGES[tone]}{f': {kind}' if kind and tone == 'wrong' else ''}{unfinished}"


def _answers(record: Record, folder: Path, place: str) -> Answers:
    steps = next_steps(record, folder)
    go_on = resume_hint(folder) if not is_done(record) else None
    if go_on is not None:
        steps.append(go_on if go_on.remark else NextStep(go_on.command, "goes on where it ended"))
    return Answers(_what(record), _where(record, place), _known(record, folder), tuple(steps))


def _what(record: Record) -> str:
    signature = record.signature
    if signature is None or not (record.verdict.is_excused or tone_of(record.verdict) == "wrong"):
        return sentence(record.detail or VERDICTS[record.verdict])
    if record.verdict.is_excused:
        return sentence(f"{VERDICTS[record.verdict]}; {record.detail or signature}")
    return what_fails(signature)


def _where(record: Record, place: str) -> str:
    whole, culprit = record.end_to_end, record.culprit
    if whole is not None and whole.judgement.fails:
        return where_of_program(whole)
    if culprit is None:
        fails = tone_of(record.verdict) == "wrong"
        return sentence(
            record.reason or ("not searched yet" if fails else "nowhere: nothing fails")
        )
    return " ".join(_where_sentences(culprit, culprit.line or place))


def _where_sentences(culprit: CulpritRecord, place: str) -> list[str]:
    sentences = [sentence(f"{culprit.where}: {PLACES[culprit.stage]}", is_name=True)]
    if culprit.rewrite is not None:
        sentences.append(sentence(f"rewrite {culprit.rewrite}, {culprit.rule}"))
    if culprit.nodes:
        names = ", ".join(culprit.nodes[:4])
        sentences.append(f"Nodes {names}{' …' if len(culprit.nodes) > 4 else ''}.")
    return [*sentences, *([f"Program line {place}."] if place else [])]


def _known(record: Record, folder: Path) -> str:
    rows = dict(facts(record, folder))
    known = rows.get("proof") or record.detail or record.reason or rows.get("evidence")
    sentences = [sentence(known or VERDICTS[record.verdict])]
    if record.excluded:
        sentences.append(
            f"{count_of(len(record.excluded), 'other cause')} excluded, see the proof."
        )
    return " ".join(sentences)


def _proof(record: Record, folder: Path) -> Section:
    rows = tuple(row for row in facts(record, folder) if row[0] not in _IN_ANSWERS)
    blocks: list[Block] = [Facts(rows)]
    if record.culprit is not None and record.culprit.excerpt:
        blocks.append(
            Code("The lines that compute the wrong value", "\n".join(record.culprit.excerpt))
        )
    return section("Proof", blocks)


def _smallest(record: Record, folder: Path) -> Path:
    if record.repro.path is not None:
        return (folder / record.repro.path).parent
    minimal = folder / "minimal"
    return minimal if minimal.is_dir() else folder / "case"


def _repro(record: Record, folder: Path, again: NextStep) -> Section:
    repro = record.repro
    script = folder / repro.path if repro.path is not None else None
    ran = f"{repro.clean_run}, exit code {repro.exit_code}" if repro.clean_run else "not run"
    return repro_section(script, folder, f"Run in a clean process: {ran}.", again)


def _with_trust(environment: Section, case: Path) -> Section:
    return Section(environment.title, (*environment.blocks, *trust_block(case)))


def _again(folder: Path, operation: str = "diagnose") -> str:
    """Return a command on the subject of a folder, or on its case."""
    known = other_command(folder, "minify" if operation == "minify" else "diagnose")
    return known or f"ctk {operation} {quote(str(folder / 'case'))}"
