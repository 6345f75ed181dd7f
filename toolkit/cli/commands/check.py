"""`ctk check`: compare every value that survives each step of the compile with eager."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from rich.console import RenderableType

from ctk.toolkit.ci.options import BaselineOptions
from ctk.toolkit.cli.commands.report import WithReport, with_live_report
from ctk.toolkit.cli.shell.answer import Answer, table
from ctk.toolkit.cli.shell.ci_answer import answer_of_comparison
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.exit_codes import (
    apply_acceptance,
    document_data,
    evidence_lines,
    exit_code_of,
    steps_after,
)
from ctk.toolkit.cli.shell.options import SubjectArgument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import CheckOptions
from ctk.toolkit.options import keywords_of

if TYPE_CHECKING:
    from rich.table import Table

    from ctk.toolkit.case.next_step import NextStep
    from ctk.toolkit.operations.check import CheckReport, GraphCheck

SHOWN = 40
"""How many rows of the history are shown."""

UNCHANGED = "no step changed the error of any value"


def check(
    subject: SubjectArgument,
    options: CheckOptions,
    baseline: BaselineOptions,
    report: WithReport = False,
) -> Answer:
    """Compare every step of the compile with eager.

    One compile: each pass, the partition and each kernel, every value that survives it. The results
    decide: a wrong value that they hide is reported, but is not a failure. With --out, writes each
    graph as a case, a healthy one too. With a baseline, a known failure is not one, and each graph
    that passes is compiled once more, to measure its accuracy.
    """
    from ctk.toolkit.ci.check_outcomes import list_outcomes, write_outcomes
    from ctk.toolkit.operations.check import check as check_program
    from ctk.toolkit.operations.pages.check_page import page_of_check
    from ctk.toolkit.oracle.answers.resume_command import command_about

    with progress() as say:
        found = check_program(subject, say=say, **keywords_of(options))
    steps = steps_after(found.judgement, found.end_to_end, subject, options)
    idle = [
        f"{each} rewrote nothing in {graph.case.name}; why: "
        f"{explain_command(graph, each, subject, options)}"
        for graph in found.graphs
        for each in graph.idle
    ]
    answer = answer_of_report(found, steps, idle, history=options.history)
    answer = apply_acceptance(answer, found.judgement, options)
    make = partial(page_of_check, found, subject, tuple(steps)) if report else None
    out = Path(options.out).expanduser() if options.out is not None else None
    answer = with_live_report(answer, make, out)
    command = command_about(subject, "diagnose", options.told)
    write_outcomes(found, subject, command)
    if not baseline.is_set:
        return answer
    outcomes = tuple(list_outcomes(found, subject, command=command, measure=True))
    return answer_of_comparison(answer, outcomes, baseline)


def explain_command(graph: "GraphCheck", name: str, subject: str, options: CheckOptions) -> str:
    """Return the command that explains why a pass did not fire.

    `show` compiles a written case, or a program with its own options: with other options, the graph
    is written first.
    """
    from ctk.toolkit.case.admission import command_on
    from ctk.toolkit.oracle.answers.resume_command import command_about

    rule = f"--why-not {quote(name.rpartition('/')[2].partition('#')[0])}"
    if graph.folder is not None:
        return f"{command_on('show', graph.folder)} {rule}"
    if not options.config:
        trust = " --trust" if options.trust else ""
        return f"ctk show {quote(subject)} {rule}{trust}"
    written = f"{command_about(subject, 'check', options.told)} --out cases"
    return f"{written}; {command_on('show', Path('cases', graph.case.name), graph.case)} {rule}"


def answer_of_report(
    report: "CheckReport",
    steps: "Sequence[NextStep]" = (),
    idle: Sequence[str] = (),
    *,
    history: bool = False,
) -> Answer:
    """Return the answer: a failure if the results of any graph are one.

    Args:
        idle: A sentence on each configured pass that rewrote nothing.
    """
    data = {
        "graphs": [graph_data(graph, history=history) for graph in report.graphs],
        "end_to_end": document_data(report.end_to_end),
        "next": [str(step) for step in steps],
    }
    rows: list[RenderableType] = [findings_table(report)]
    if history:
        rows += ["", history_table(report) if report.history else UNCHANGED]
    rows += [f"compared   {detail}" for detail in report.agreements]
    rows += [
        f"note       {graph.case.name}: {note}" for graph in report.graphs for note in graph.notes
    ]
    rows += [f"idle       {sentence}" for sentence in idle]
    rows += [f"case       {graph.folder}" for graph in report.graphs if graph.folder is not None]
    body = (*rows, *evidence_lines(report.end_to_end), *(f"next: {step}" for step in steps))
    return Answer(exit_code_of(report.judgement), str(report), data, body)


def history_table(report: "CheckReport") -> "Table":
    """Return one row per value that a step changed, the worst first; the data has all of them."""
    rows = table("graph", "step", "value", "ulp before", "ulp after", "max abs", "max rel", "times")
    changes = [(graph.case.name, change) for graph in report.graphs for change in graph.history]
    changes.sort(key=lambda pair: pair[1].growth_ulp, reverse=True)
    for name, each in changes[:SHOWN]:
        before, after = each.before, each.after
        numbers = (before.max_ulp, after.max_ulp, after.max_abs, after.max_rel, each.ratio)
        rows.add_row(name, each.step, each.value, *(f"{number:.3g}" for number in numbers))
    if len(changes) > SHOWN:
        rows.add_row("...", f"and {len(changes) - SHOWN} more: --json has all")
    return rows


def findings_table(report: "CheckReport") -> "Table":
    """Return one row per step."""
    rows = table("graph", "step", "status", "values", "what")
    for graph in report.graphs:
        for finding in graph.findings:
            status = "wrong, hidden" if graph.hidden and finding.mismatch else finding.status
            cells = (finding.where, status, str(finding.compared), finding.what)
            rows.add_row(graph.case.name, *cells)
    return rows


def graph_data(graph: "GraphCheck", *, history: bool) -> dict[str, object]:
    """Return the JSON form of one graph's findings, with the history of error if it is wanted."""
    findings = [
        {
            "step": finding.where,
            "kind": finding.step.kind,
            "status": finding.status,
            "hidden": bool(graph.hidden and finding.mismatch),
            "node": finding.node,
            "compared": finding.compared,
            "mismatch": asdict(finding.mismatch) if finding.mismatch else None,
            "reason": finding.reason,
        }
        for finding in graph.findings
    ]
    changes = [asdict(change) | {"ratio": change.ratio} for change in graph.history]
    data: dict[str, object] = {
        "graph": graph.case.name,
        "judgement": document_data(graph.judgement),
        "findings": findings,
        "idle": list(graph.idle),
        "notes": list(graph.notes),
        "case": str(graph.folder) if graph.folder is not None else None,
    }
    return data | ({"history": changes} if history else {})


COMMAND = Command("check", check)
