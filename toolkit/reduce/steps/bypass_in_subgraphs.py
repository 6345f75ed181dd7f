"""Bypass nodes inside sub-graphs, at any depth. What a sub-graph takes and returns stays."""

from collections.abc import Callable, Iterator, Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.edits import BypassInside
from ctk.toolkit.reduce.proposal import Choice, Proposal, Step
from ctk.toolkit.reduce.steps.bypass import bypasses
from ctk.toolkit.reduce.subgraphs import inner_case, subgraphs


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to bypass any combination of nodes of one sub-graph; sub-graphs in order."""
    return list(_proposals(case, ()))


def _proposals(case: Case, path: tuple[str, ...]) -> Iterator[Proposal]:
    for subgraph in subgraphs(case.graph):
        inner = inner_case(case, subgraph)
        if inner is None:
            continue
        inner_path = (*path, subgraph.target)
        for pairs in bypasses(inner, facts_of(inner)):
            yield Choice(_bypass_in(inner_path), pairs)
        yield from _proposals(inner, inner_path)


def _bypass_in(
    path: tuple[str, ...],
) -> Callable[[tuple[tuple[str, str], ...]], BypassInside]:
    return lambda pairs: BypassInside(path, pairs)


STEP = Step("inside", propose)
