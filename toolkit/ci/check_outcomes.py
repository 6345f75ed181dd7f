"""The outcomes of a check: one for each graph, and one for a program that fails as a whole."""

from collections.abc import Iterator
from dataclasses import replace

from ctk.toolkit.case.graphs.places import place_of
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.ci.accuracy import measure_worst_ulp
from ctk.toolkit.ci.outcome import Outcome, write_outcome
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.operations.check import CheckReport, GraphCheck


def list_outcomes(
    report: CheckReport, subject: str, *, command: str = "", measure: bool = False
) -> Iterator[Outcome]:
    """Yield the outcomes of a check.

    Args:
        subject: As the user names it: with the name of a graph it is the name of the test.
        command: Shows more of a failure.
        measure: Compile each graph that passes once more, and measure its accuracy.
    """
    for graph in report.graphs:
        outcome = _outcome_of_graph(graph, subject, command)
        is_measured = measure and outcome.verdict is Verdict.PASSES
        worst = measure_worst_ulp(graph.case) if is_measured else None
        yield replace(outcome, worst_ulp=worst)
    whole = report.end_to_end
    if whole is not None and (whole.judgement.fails or not report.graphs):
        outcome = _outcome(whole.judgement, subject, whole.target, command)
        found = {"culprit": whole.where, "place": whole.line, "confirmed": whole.confirmed}
        yield replace(outcome, **found) if outcome.fails else outcome


def write_outcomes(report: CheckReport, subject: str, command: str) -> None:
    """Write `outcome.json` beside each case that a check has written."""
    for graph in report.graphs:
        if graph.folder is not None:
            outcome = _outcome_of_graph(graph, subject, command)
            write_outcome(replace(outcome, folder="."), graph.folder)


def _outcome_of_graph(graph: GraphCheck, subject: str, command: str) -> Outcome:
    test = f"{subject}: {graph.case.name}"
    outcome = replace(_outcome(graph.judgement, test, graph.case.target, command), graphs=1)
    if outcome.fails and graph.wrong:
        first = graph.wrong[0]
        return replace(outcome, culprit=first.where, place=_find_place(first))
    seen = outcome.signature
    if outcome.fails and seen is not None and seen.exception is not None:
        return replace(outcome, culprit=seen.where)
    return outcome


def _find_place(finding: Finding) -> str:
    """Return `FILE:LINE` of the user's program whose value a step makes wrong; empty if unknown.

    A node that a pass has made may have none: then it is that of the nearest operand.
    """
    graph = (finding.step.after or finding.step.before).graph
    nodes = {node: None for node in graph.nodes if node.name == finding.node}
    while nodes:
        place = next(filter(None, map(place_of, nodes)), "")
        if place:
            return place
        nodes = {operand: None for node in nodes for operand in node.all_input_nodes}
    return ""


def _outcome(judgement: Judgement, test: str, target: str, command: str) -> Outcome:
    seen = judgement.signature
    said = str(seen) if seen is not None and not judgement.is_excused else judgement.detail
    return Outcome(
        test=test,
        target=target,
        verdict=judgement.verdict,
        headline=f"{test} with target {target}: {said or judgement.verdict.value}",
        signature=seen,
        command=command if judgement.fails else "",
        seconds=judgement.seconds or 0.0,
    )
