"""The page of a reduction in memory, as a notebook shows it; a folder has more to show."""

from ctk.compiler.errors import count_of
from ctk.toolkit.case.graphs.graph_lines import graph_lines
from ctk.toolkit.page.page import Answers, Block, Code, Page, Rows, Section, section
from ctk.toolkit.reduce.driver import Reduction

_MOST_EDITS = 400


def page_of_reduction(reduction: Reduction) -> Page:
    """Return the page of a reduction."""
    before, after = reduction.nodes_before, count_of(reduction.nodes_after, "call node")
    state = "minimal" if reduction.finished else f"stopped: {reduction.reason}"
    signature = reduction.best.signature
    asked = sum(each.verdict is not None for each in reduction.certificate)
    return Page(
        subject=reduction.best.name,
        tone="wrong",
        badge=state,
        headline=f"{reduction.best.name}: {before:,} -> {after} ({state})",
        answers=Answers(
            f"{signature}." if signature is not None else "The failure that the oracle decides.",
            f"In a graph of {after}, see below.",
            f"{count_of(reduction.questions, 'question')} in {reduction.seconds:.1f} s; "
            f"{count_of(len(reduction.certificate), 'edit')} would make it smaller, {asked} were "
            "asked about, and none reproduces.",
        ),
        sections=(
            section("Smallest graph", [Code("Nodes", "\n".join(graph_lines(reduction.graph)))]),
            _steps(reduction),
            _certificate(reduction),
        ),
    )


def _steps(reduction: Reduction) -> Section:
    rows = tuple(
        (name, f"{each.questions:,}", f"{each.useful:,}", f"{each.cached:,}")
        for name, each in reduction.statistics.items()
        if each.questions or each.cached
    )
    columns = ("step", "questions", "useful", "cached")
    table = Rows("Questions of each step", columns, rows, numbers=frozenset({1, 2, 3}))
    return section("Reduction", [table])


def _certificate(reduction: Reduction) -> Section:
    rows = tuple(
        (
            each.step,
            each.edit,
            "not asked" if each.verdict is None else each.verdict.value,
            each.why,
        )
        for each in reduction.certificate[:_MOST_EDITS]
    )
    label = "Each edit that would make it smaller, and its outcome"
    blocks: list[Block] = [Rows(label, ("step", "edit", "outcome", "reason"), rows)]
    if reduction.neighbour is not None:
        text = "\n".join(graph_lines(reduction.neighbour.graph))
        blocks.append(Code("Nearest case that passes", text))
    return section("Certificate", blocks)
