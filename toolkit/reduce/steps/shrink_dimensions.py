"""Shrink dimensions through the whole graph: dependent sizes shrink together.

The free sizes (`relations.py`) are tried at 1, all at once, in halves, one by one; needed sizes are
bisected. Then single dimensions of inputs at 1 alone: they may broadcast. Last, equal sizes
together: a failure may need as many heads as tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch.fx import Node

from ctk.compiler.fx.walk import CALLS, fetch, graphs_by_path, placeholders
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.dimensions.dimension_edits import CutDimensions, Resize, ShrinkDimensions
from ctk.toolkit.reduce.dimensions.relations import Relations
from ctk.toolkit.reduce.dimensions.size_places import SizePlace, map_literals
from ctk.toolkit.reduce.dimensions.sizing import Sizing, Untraceable, sizing_of
from ctk.toolkit.reduce.proposal import Descent, GaveUp, Guesses, Monotone, Proposal, Step
from ctk.toolkit.reduce.size import call_nodes

MOST_NODES = 400
"""Larger graphs are left to the steps that take nodes away: running one with symbols takes seconds
(2 to 5 at 300 nodes, 7 to 10 at 600)."""

FEW_NODES = 100
"""In larger graphs the step waits until no other one helps."""

STAYS = ("conv", "pool", "pad", "fold", "stft")
"""In the names of operators whose own numbers (strides, padding) are no sizes of anything."""


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
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
    for place, size in places:
        yield _cut([Resize(place, size, 1)])
    yield from map(_cut, _equal(sizes))
    yield GaveUp(f"sizes that depend on each other were not tried: no fake tensors run this: {why}")


def _is_static(place: SizePlace, case: Case) -> bool:
    symbols = case.dynamic.get(place.name, ()) if place.kind == "input" else ()
    named = {dim for dim, symbol in enumerate(symbols) if symbol}
    return place.kind != "number" and named.isdisjoint(place.where)


def _cut(group: Sequence[Resize]) -> Descent:
    old = group[0].old
    return Descent(lambda new: CutDimensions(tuple(replace(each, new=new) for each in group)), old)


def _proposals(case: Case, sizing: Sizing) -> Sequence[Proposal]:
    chosen = _choose_sizes(case, sizing)
    sizes = [Resize(place, old, 1) for place, old in chosen.items() if old > 1]
    bound = [each for each in sizes if _is_of_tensor(sizing.relations, each.place)]
    half = len(bound) // 2
    groups = [bound, bound[:half], bound[half:]] if len(bound) > 3 else [bound]
    together = Guesses(tuple(ShrinkDimensions(tuple(g)) for g in groups if len(g) > 1))
    return [
        together,
        *(_one(place, old) for place, old in chosen.items()),
        *_alone(case, sizing.relations),
        *(
            _one(p, old if sizing.has_notable(p) else 1, from_start=True)
            for p, old in chosen.items()
        ),
        *(_shrunk(group) for group in _equal(bound)),
    ]


def _equal(sizes: Sequence[Resize]) -> Iterator[list[Resize]]:
    for old in sorted({each.old for each in sizes}, reverse=True):
        group = [each for each in sizes if each.old == old]
        if len(group) > 1:
            yield group


def _one(place: SizePlace, size: int, *, from_start: bool = False) -> Descent:
    return _shrunk([Resize(place, size, 1)], from_start=from_start)


def _shrunk(group: Sequence[Resize], *, from_start: bool = False) -> Descent:
    old = group[0].old
    return Descent(
        lambda new: ShrinkDimensions(
            tuple(replace(each, new=new) for each in group), from_start=from_start
        ),
        old,
    )


def _alone(case: Case, relations: Relations) -> Iterator[Monotone]:
    """Yield proposals to make one dimension of an input 1 that others have in common with it."""
    for place, size in _dimensions(case):
        symbol = relations.trace.symbols.get(place)
        is_shared = symbol is not None and _is_shared(place, relations)
        is_shared = is_shared and symbol not in relations.trace.dynamic
        edit = ShrinkDimensions((Resize(place, size, 1),), alone=True)
        yield Monotone(lambda _, edit=edit: edit, 1 if is_shared and size > 1 else 0)


def _is_shared(place: SizePlace, relations: Relations) -> bool:
    formula = relations.formula(relations.trace.symbols[place])
    return any(
        other != place and relations.formula(symbol).free_symbols & formula.free_symbols
        for other, symbol in relations.trace.symbols.items()
    )


def _choose_sizes(case: Case, sizing: Sizing) -> dict[SizePlace, int]:
    """Return the places whose sizes may be chosen, and how large these are (1: nothing to do)."""
    relations = sizing.relations
    sizes = _literal_sizes(relations)
    taken: set[object] = set()
    found: dict[SizePlace, int] = {}
    for place, size in (*_dimensions(case), *_literals(case)):
        symbol = relations.trace.symbols.get(place)
        is_free = symbol in relations.roots and symbol not in taken
        if is_free and place.kind == "literal":
            is_free = symbol in sizes
        found[place] = size if is_free else 1
        taken.add(symbol)
    return found


def _literal_sizes(relations: Relations) -> set[object]:
    trace = relations.trace
    sizes = {s for p, s in trace.symbols.items() if p.kind != "literal"} | trace.computed
    formulas = [relations.formula(symbol) for symbol in sizes]
    return set().union(*(each.free_symbols for each in formulas)) - trace.fixed


def _is_of_tensor(relations: Relations, place: SizePlace) -> bool:
    symbol = relations.trace.symbols[place]
    return any(each.kind != "literal" for each in relations.places(symbol))


def _dimensions(case: Case) -> Iterator[tuple[SizePlace, int]]:
    """Yield the dimensions of inputs, the outermost graph's number inputs and its constants."""
    for node, value in zip(placeholders(case.graph), case.inputs, strict=True):
        if isinstance(value, torch.Tensor):
            yield from (
                (SizePlace("input", "", node.name, (d,)), s) for d, s in enumerate(value.shape)
            )
        elif type(value) is int:
            yield SizePlace("number", "", node.name), value
    for path, graph in graphs_by_path(case.graph).items():
        for node in graph.graph.find_nodes(op="get_attr"):
            value = fetch(graph, node.target)
            if isinstance(value, torch.Tensor):
                for dim, size in enumerate(value.shape):
                    yield SizePlace("constant", path, str(node.target), (dim,)), size


def _literals(case: Case) -> Iterator[tuple[SizePlace, int]]:
    for path, graph in graphs_by_path(case.graph).items():
        for node in graph.graph.nodes:
            if node.op in CALLS:
                yield from _literals_of(node, path)


def _literals_of(node: Node, path: str) -> Iterator[tuple[SizePlace, int]]:
    found: list[tuple[SizePlace, int]] = []

    def note(number: int, where: tuple[int | str, ...]) -> int:
        found.append((SizePlace("literal", path, node.name, where), number))
        return number

    map_literals({**dict(enumerate(node.args)), **node.kwargs}, note, least=1)
    name = getattr(node.target, "__name__", str(node.target))
    if any(word in name for word in STAYS):
        found = [(place, size) for place, size in found if _is_groups(place, name)]
    yield from found


def _is_groups(place: SizePlace, name: str) -> bool:
    position = 8 if "convolution" in name else 6
    return "conv" in name and place.where in ((position,), ("groups",))


def is_late(case: Case, facts: Facts) -> bool:
    """Return whether there is more to remove first."""
    return call_nodes(case) > FEW_NODES


STEP = Step("shrink_dimensions", propose, is_late=is_late)
