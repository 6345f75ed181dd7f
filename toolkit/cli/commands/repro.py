"""`ctk repro`: does it still fail? With `--out`, also write the case and a verified repro.py."""

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from ctk.toolkit.cli.shell.answer import Answer, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.exit_codes import (
    apply_acceptance,
    document_data,
    evidence_lines,
    exit_code_of,
    line_of,
    steps_after,
)
from ctk.toolkit.cli.shell.options import SubjectArgument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import ReproOptions
from ctk.toolkit.options import keywords_of

if TYPE_CHECKING:
    from ctk.toolkit.case.next_step import NextStep
    from ctk.toolkit.operations.repro import GraphRepro, ReproReport


def repro(subject: SubjectArgument, options: ReproOptions) -> Answer:
    """Say whether a case still fails.

    Compiles and runs it and compares the results with eager. With --out, writes each failing graph
    as a case with a repro.py that was run in a clean process.
    """
    from ctk.toolkit.operations.repro import repro as repro_program

    with progress() as report:
        found = repro_program(subject, say=report, **keywords_of(options))
    steps = steps_after(found.judgement, found.end_to_end, subject, options)
    return apply_acceptance(answer_of(found, steps), found.judgement, options)


def answer_of(found: "ReproReport", steps: "Sequence[NextStep]") -> Answer:
    """Return the answer; the most severe judgement makes the first line, `steps` the last ones."""
    judgement = found.judgement
    judged = [(graph.case, graph.judgement) for graph in found.graphs]
    case = next((case for case, seen in judged if seen is judgement), None)
    rows = ((case.name, case.target, seen.verdict.value, line_of(seen)) for case, seen in judged)
    shown = [table("graph", "target", "verdict", "what", rows=rows)] if len(judged) > 1 else []
    lines = [
        f"{graph.case.name}: python {quote(str(graph.script))}  # {graph.run.outcome}"
        for graph in found.graphs
        if graph.run
    ]
    whole = found.end_to_end
    if case is not None:
        headline = f"{line_of(judgement)} [{case.name}, {case.target}]"
    else:
        assert whole is not None, "one of the two was asked"
        place = f": {whole.where}" if judgement.fails else ""
        headline = f"{line_of(judgement)} [{whole.program}, {whole.target}{place}]"
    data = {
        "graphs": [graph_data(graph) for graph in found.graphs],
        "end_to_end": document_data(whole),
        "next": [str(step) for step in steps],
    }
    body = (*shown, *lines, *evidence_lines(whole), *(f"next: {step}" for step in steps))
    return Answer(exit_code_of(judgement), headline, data, body)


def graph_data(graph: "GraphRepro") -> dict[str, object]:
    """Return the JSON form of one graph."""
    written = graph.run and {
        "case": str(graph.folder),
        "repro": str(graph.script),
        "clean_run": graph.run.outcome,
    }
    facts = {"graph": graph.case.name, "target": graph.case.target}
    return facts | document_data(graph.judgement) | {"written": written}


COMMAND = Command("repro", repro)
