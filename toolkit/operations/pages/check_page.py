"""The page of a check, from its live report: the graph with the most severe judgement in full."""

from shlex import quote

from ctk.compiler.errors import count_of
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.compile_log.trace.document import Trace
from ctk.toolkit.operations.check import CheckReport, GraphCheck
from ctk.toolkit.operations.pages.compile_page import (
    findings_section,
    how_known,
    where_wrong,
)
from ctk.toolkit.operations.pages.sentences import (
    BADGES,
    sentence,
    tone_of,
    what_fails,
    where_of_program,
)
from ctk.toolkit.operations.pages.trace_sections import find_focus, find_trace, trace_sections
from ctk.toolkit.operations.report.phrases import VERDICTS
from ctk.toolkit.page.page import Answers, Facts, Focus, Page, Rows, Section, section

_NO_STEPS = "The compile has no steps to show, because it did not end in this process."


def page_of_check(report: CheckReport, subject: str, steps: tuple[NextStep, ...] = ()) -> Page:
    """Return the page of a check.

    Args:
        subject: The program as the user names it.
        steps: The next steps.
    """
    seen, tone = report.judgement, tone_of(report.judgement.verdict)
    graph = next((each for each in report.graphs if each.judgement is seen), None)
    graph = graph or next((each for each in report.graphs if each.wrong), None)
    graph = graph or next(iter(report.graphs), None)
    trace = _trace_of(graph)
    focus = find_focus(trace) if trace is not None else Focus()
    signature = seen.signature if seen.fails else None
    again = NextStep(f"ctk check {quote(subject)} --out DIR", "without --isolate")
    return Page(
        subject=subject,
        tone=tone,
        badge=f"{BADGES[tone]}{f': {signature.kind}' if signature is not None else ''}",
        headline=_headline(report, graph),
        answers=Answers(
            what_fails(signature)
            if signature is not None
            else sentence(seen.detail or VERDICTS[seen.verdict]),
            _where(report, trace, focus),
            _known(report, trace),
            steps,
        ),
        sections=(
            _graphs(report),
            *([findings_section(trace)] if trace is not None else []),
            *trace_sections(trace, focus, _NO_STEPS, again),
        ),
        trace=trace,
        focus=focus,
    )


def _headline(report: CheckReport, graph: GraphCheck | None) -> str:
    """Return the answer in a line; of a wrong step without its numbers, which stand below."""
    if graph is None or not graph.judgement.fails or not graph.wrong:
        return str(report)
    return f"{graph.case.name} with target {graph.case.target} goes wrong at {graph.wrong[0].where}"


def _trace_of(graph: GraphCheck | None) -> Trace | None:
    if graph is None or not graph.log.events:
        return None
    trace = find_trace(graph.folder)[0] if graph.folder is not None else graph.make_trace()
    return trace if trace is not None and trace.steps else None


def _where(report: CheckReport, trace: Trace | None, focus: Focus) -> str:
    whole = report.end_to_end
    if whole is not None and whole.judgement.fails:
        return where_of_program(whole)
    return where_wrong(trace, focus, report.judgement.signature)


def _known(report: CheckReport, trace: Trace | None) -> str:
    whole = report.end_to_end
    if whole is not None and whole.judgement.fails and whole.evidence:
        return sentence("; ".join(whole.evidence[:2]))
    detail = report.judgement.detail.partition("\n")[0]  # a traceback may follow
    return how_known(trace, sentence(detail or "the answer is of a child process"))


def _graphs(report: CheckReport) -> Section:
    rows = tuple(
        (
            each.case.name,
            VERDICTS[each.judgement.verdict],
            _first_wrong_of(each),
            "; ".join(each.notes),
        )
        for each in report.graphs
    )
    wrong = frozenset(at for at, each in enumerate(report.graphs) if each.judgement.fails)
    columns = ("graph", "result", "first wrong step, or failure", "notes")
    table = Rows(f"{count_of(len(rows), 'graph')} of the program", columns, rows, wrong)
    whole = report.end_to_end
    if whole is None:
        return section("Graphs", [table])
    rows_of_program = [("whole program", VERDICTS[whole.judgement.verdict])]
    rows_of_program += [("evidence", each) for each in whole.evidence]
    return section("Graphs", [table, Facts(tuple(rows_of_program))])


def _first_wrong_of(graph: GraphCheck) -> str:
    if graph.wrong:
        return f"{graph.wrong[0].where} at {graph.wrong[0].what}"
    return str(graph.judgement.signature or "") if graph.judgement.fails else ""
