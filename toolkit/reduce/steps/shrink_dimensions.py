"""Shrink dimensions through the whole graph: dependent sizes shrink together.

The free sizes (`relations.py`) are tried at 1, all at once, in halves, one by one; needed sizes are
bisected. Then single dimensions of inputs at 1 alone: they may broadcast. Last, equal sizes
together: a failure may need as many heads as tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch

from ctk.compiler.fx.walk import CALLS, graphs_by_path
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.dimensions.dimension_edits import (
    CutDimensions,
    Resize,
    ShrinkDimensions,
    Sizing,
    Untraceable,
    sizing_of,
)
from ctk.toolkit.reduce.dimensions.relations import Relations
from ctk.toolkit.reduce.dimensions.size_places import SizePlace, literals_of, placed_values
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import (
    Descent,
    GaveUp,
    Guesses,
    Monotone,
    Proposal,
    Proposals,
    Step,
    ladder_of_edits,
)
from ctk.toolkit.reduce.size import call_nodes

MOST_NODES = 400
"""Larger graphs are left to the steps that take nodes away: running one with symbols takes seconds
(2 to 5 at 300 nodes, 7 to 10 at 600)."""

FEW_NODES = 100
"""In larger graphs the step waits until no other one helps."""

STAYS = ("conv", "pool", "pad", "fold", "stft")
"""In the names of operators whose own numbers (strides, padding) are no sizes of anything."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose all sizes at once, then halves of them, then each; see the module."""
    if call_nodes(case) > MOST_NODES:
        return [GaveUp(f"sizes are tried in graphs of at most {MOST_NODES} calls")]
    sizing = sizing_of(case, facts)
    if isinstance(sizing, Untraceable):
        return list(_without_relations(case, sizing.why))
    if not sizing.proposals:
        sizing.proposals = tuple(_proposals(case, sizing))
    return sizing.proposals


def _without_relations(case: Case, why: str) -> Iterator[Proposal]:
    """Yield proposals for a case without known relations: single dimensions, all equal sizes."""
    places = [pair for pair in _dimensions(case) if _is_static(pair[0], case)]
    sizes = [Resize(place, old, 1) for place, old in places if old > 1]
    if not sizes:
        return
    yield Guesses((CutDimensions(tuple(sizes)),))
    for group in (*([Resize(place, size, 1)] for place, size in places), *_equal(sizes)):
        yield _descent(CutDimensions, group)
    yield GaveUp(f"sizes that depend on each other were not tried: no fake tensors run this: {why}")


def _is_static(place: SizePlace, case: Case) -> bool:
    symbols = case.dynamic.get(place.name, ()) if place.kind == "input" else ()
    named = {dim for dim, symbol in enumerate(symbols) if symbol}
    return place.kind != "number" and named.isdisjoint(place.where)


def _descent(edit: Callable[[tuple[Resize, ...]], Edit], group: Sequence[Resize]) -> Descent:
    """Return the proposal to give equal sizes a smaller number."""
    return Descent(lambda new: edit(tuple(replace(each, new=new) for each in group)), group[0].old)


def _proposals(case: Case, sizing: Sizing) -> Proposals:
    chosen = _choose_sizes(case, sizing)
    sizes = [each for each in chosen if each.old > 1]
    bound = [size for size in sizes if _is_of_tensor(sizing.relations, size.place)]
    half = len(bound) // 2
    groups = [bound, bound[:half], bound[half:]] if len(bound) > 3 else [bound]
    together = Guesses(tuple(ShrinkDimensions(tuple(g)) for g in groups if len(g) > 1))
    notable = [each if sizing.has_notable(each.place) else replace(each, old=1) for each in chosen]
    from_start = partial(ShrinkDimensions, from_start=True)
    return [
        together,
        *(_descent(ShrinkDimensions, [each]) for each in chosen),
        *_alone(case, sizing.relations),
        *(_descent(from_start, [each]) for each in notable),
        *(_descent(ShrinkDimensions, group) for group in _equal(bound)),
    ]


def _equal(sizes: Sequence[Resize]) -> Iterator[list[Resize]]:
    for old in sorted({size.old for size in sizes}, reverse=True):
        group = [size for size in sizes if size.old == old]
        if len(group) > 1:
            yield group


def _alone(case: Case, relations: Relations) -> Iterator[Monotone]:
    """Yield proposals to make one dimension of an input 1 that others have in common with it."""
    for place, size in _dimensions(case):
        symbol = relations.trace.symbols.get(place)
        is_shared = symbol is not None and _is_shared(place, relations)
        is_shared = is_shared and symbol not in relations.trace.dynamic
        edit = ShrinkDimensions((Resize(place, size, 1),), alone=True)
        yield ladder_of_edits(*([edit] if is_shared and size > 1 else []))


def _is_shared(place: SizePlace, relations: Relations) -> bool:
    formula = relations.formula(relations.trace.symbols[place])
    return any(
        other != place and relations.formula(symbol).free_symbols & formula.free_symbols
        for other, symbol in relations.trace.symbols.items()
    )


def _choose_sizes(case: Case, sizing: Sizing) -> list[Resize]:
    """Return the changes of sizes that may be chosen, to 1; from 1 on: nothing to do."""
    relations = sizing.relations
    sizes = _literal_sizes(relations)
    taken: set[object] = set()
    resizes: list[Resize] = []
    for place, size in (*_dimensions(case), *_literals(case)):
        symbol = relations.trace.symbols.get(place)
        is_free = symbol in relations.roots and symbol not in taken
        if is_free and place.kind == "literal":
            is_free = symbol in sizes
        resizes.append(Resize(place, size if is_free else 1, 1))
        taken.add(symbol)
    return resizes


def _literal_sizes(relations: Relations) -> set[object]:
    trace = relations.trace
    sizes = {s for p, s in trace.symbols.items() if p.kind != "literal"} | trace.computed
    formulas = [relations.formula(symbol) for symbol in sizes]
    return set().union(*(formula.free_symbols for formula in formulas)) - trace.fixed


def _is_of_tensor(relations: Relations, place: SizePlace) -> bool:
    symbol = relations.trace.symbols[place]
    return any(each.kind != "literal" for each in relations.places(symbol))


def _dimensions(case: Case) -> Iterator[tuple[SizePlace, int]]:
    """Yield the dimensions of inputs, the outermost graph's number inputs and its constants."""
    for place, value in placed_values(case):
        if isinstance(value, torch.Tensor):
            if not value.is_nested:  # its sizes are symbols, or none at all
                yield from ((place.at(dim), size) for dim, size in enumerate(value.shape))
        elif place.kind == "number":
            yield place, cast("int", value)


def _literals(case: Case) -> Iterator[tuple[SizePlace, int]]:
    for path, graph in graphs_by_path(case.graph).items():
        for node in graph.graph.nodes:
            if node.op not in CALLS:
                continue
            name = getattr(node.target, "__name__", str(node.target))
            stay = any(word in name for word in STAYS)
            for place, number in literals_of(node, path, least=1):
                if not stay or _is_groups(place, name):
                    yield place, number


def _is_groups(place: SizePlace, name: str) -> bool:
    position = 8 if "convolution" in name else 6
    return "conv" in name and place.where in ((position,), ("groups",))


def is_late(case: Case, facts: Facts) -> bool:
    """Return whether there is more to remove first."""
    return call_nodes(case) > FEW_NODES


STEP = Step("shrink_dimensions", propose, is_late=is_late, detail="sizes")
