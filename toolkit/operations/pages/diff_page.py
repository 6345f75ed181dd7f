"""The page of a comparison of two compiles of one program."""

from collections.abc import Iterator

from ctk.compiler.errors import count_of
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.compile_log.compare import MadeRewrite, format_rewrites
from ctk.toolkit.operations.diff import DiffReport, GraphDiff
from ctk.toolkit.operations.pages.sentences import BADGES, sentence, tone_of
from ctk.toolkit.operations.report.phrases import VERDICTS
from ctk.toolkit.oracle.answers.resume_command import command_about
from ctk.toolkit.page.page import (
    Absent,
    Answers,
    Block,
    Code,
    Page,
    Prose,
    Rows,
    Section,
    section,
)

SIDES = ("left", "right")
_MOST_REWRITES = 200


def page_of_diff(report: DiffReport, subject: str) -> Page:
    """Return the page of a comparison."""
    tone = tone_of(report.judgement.verdict)
    first = next((each for each in report.graphs if not each.comparison.is_same), report.graphs[0])
    return Page(
        subject=subject,
        tone=tone,
        badge=BADGES[tone],
        headline=str(report),
        answers=Answers(
            " ".join(_results(first)),
            _first_difference(first),
            f"{count_of(len(report.graphs), 'graph')} compiled twice, and compared step by step. "
            "Neither side is blamed.",
            tuple(_next_steps(first, subject)),
        ),
        sections=tuple(_graph_section(each) for each in report.graphs),
    )


def _next_steps(graph: GraphDiff, subject: str) -> Iterator[NextStep]:
    """Yield the command that finds the culprit of each side that fails."""
    for side, case, seen in zip(SIDES, graph.cases, graph.judgements, strict=True):
        if seen.fails:
            options = {"target": case.target, "config": case.config}
            remark = f"the culprit of the {side} compile"
            yield NextStep(command_about(subject, "diagnose", options), remark)


def _results(graph: GraphDiff) -> Iterator[str]:
    for side, seen in zip(SIDES, graph.judgements, strict=True):
        result = str(seen.signature) if seen.fails and seen.signature else VERDICTS[seen.verdict]
        yield sentence(f"{side}: {result}")


def _first_difference(graph: GraphDiff) -> str:
    comparison = graph.comparison
    if comparison.is_same:
        return "The two compiles are the same, step by step."
    sentences: list[str] = []
    if (first := comparison.graph) is not None:
        sentences.append(
            f"The graphs first differ after {first.left} (left) and {first.right} (right)."
        )
    if (value := comparison.value) is not None:
        sentences.append(
            f"The values first differ at {value.node or value.value} after {value.step}."
        )
    return " ".join(sentences) or "The same graphs and values, by other rewrites."


def _graph_section(graph: GraphDiff) -> Section:
    comparison, blocks = graph.comparison, list[Block]()
    rows = tuple(
        (
            side,
            case.target,
            " ".join(f"{key}={value}" for key, value in case.config.items()),
            VERDICTS[seen.verdict],
        )
        for side, case, seen in zip(SIDES, graph.cases, graph.judgements, strict=True)
    )
    wrong = frozenset(at for at, seen in enumerate(graph.judgements) if seen.fails)
    blocks.append(Rows("The two compiles", ("side", "target", "options", "result"), rows, wrong))
    if comparison.graph is not None:
        label = f"First different graph: {comparison.graph.left} / {comparison.graph.right}"
        blocks.append(Code(label, comparison.graph.diff.partition("\n@@")[2], is_diff=True))
    blocks += _values(graph)
    for side, made in zip(SIDES, (comparison.only_left, comparison.only_right), strict=True):
        blocks += _rewrites(side, made)
    title = f"Graph {graph.cases[0].name}"
    return section(title, blocks, Absent("The two compiles are the same."))


def _values(graph: GraphDiff) -> Iterator[Block]:
    value = graph.comparison.value
    if value is None:
        yield Prose("No compared value differs.")
        return
    rows = tuple(
        (side, f"{size.max_ulp:.3g}", f"{size.max_abs:.3g}", f"{size.max_rel:.3g}")
        for side, size in zip(SIDES, (value.left, value.right), strict=True)
        if size is not None
    )
    label = f"Error of {value.node or value.value} after {value.step}, against float64"
    yield Rows(label, ("side", "ULP", "absolute", "relative"), rows, numbers=frozenset({1, 2, 3}))


def _rewrites(side: str, made: tuple[MadeRewrite, ...]) -> Iterator[Block]:
    if made:
        count = sum(each.count for each in made)
        text = "\n".join(format_rewrites(made, _MOST_REWRITES))
        yield Code(f"{count_of(count, 'rewrite')} of only the {side} compile", text)
