"""Edits that make sizes smaller; the relations of a case are computed once and kept with it."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch.fx import GraphModule

from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.dimensions.relations import (
    Assignment,
    Relations,
    assignments,
    resize_relations,
    solve_relations,
)
from ctk.toolkit.reduce.dimensions.resized_case import with_sizes
from ctk.toolkit.reduce.dimensions.size_places import SizePlace, placed_values
from ctk.toolkit.reduce.dimensions.size_trace import trace_sizes
from ctk.toolkit.reduce.dimensions.windows import notable_index, window_start
from ctk.toolkit.reduce.proposal import Proposal
from ctk.toolkit.reduce.validity import Checked, check

Wanted = Mapping[SizePlace, int]


@dataclass(slots=True)
class Sizing:
    """The sizes of one case.

    Attributes:
        checked: Sizes that were tried; None: not valid.
        proposals: Proposals of the step; empty before the first call.
    """

    case: Case
    relations: Relations
    checked: dict[frozenset[tuple[SizePlace, int]], Checked | None] = field(
        default_factory=dict[frozenset[tuple[SizePlace, int]], "Checked | None"]
    )
    proposals: Sequence[Proposal] = ()
    _anchors: Mapping[Any, int] | None = None

    def smallest(self, wanted: Wanted) -> Assignment | None:
        """Return valid sizes with those wanted, or the least above them; None if there are none."""
        for goal in self._goals(wanted):
            for sizes in assignments(self.relations, goal):
                if self.check(sizes) is not None:
                    return self.changed(sizes)
        return None

    def changed(self, sizes: Assignment) -> Assignment:
        """Return the sizes that differ from the case's own."""
        hints, symbols = self.relations.trace.hints, self.relations.trace.symbols
        return {place: size for place, size in sizes.items() if size != hints[symbols[place]]}

    def check(self, sizes: Assignment) -> Checked | None:
        """Return the result of a fake run with other sizes; None if the case cannot run."""
        sizes = self.changed(sizes)
        key = frozenset(sizes.items())
        if key not in self.checked:
            empty = self.relations.trace.empty
            self.checked[key] = check(self.case, sizes, empty=empty)
        return self.checked[key]

    def start(self, place: SizePlace, size: int, *, notable: bool = True) -> int:
        """Return the start of a window: late enough to hold the notable element."""
        return window_start(self._anchor(place), size) if notable else 0

    def has_notable(self, place: SizePlace) -> bool:
        """Return whether a notable element lies elsewhere than at the start of a dimension."""
        return self._anchor(place) > 0

    def _anchor(self, place: SizePlace) -> int:
        symbol = self.relations.trace.symbols.get(place)
        if symbol is None:
            return 0
        if self._anchors is None:
            self._anchors = self._found_anchors()
        return self._anchors.get(self.relations.formula(symbol), 0)

    def _goals(self, wanted: Wanted) -> Iterator[dict[Any, int]]:
        symbols, hints = self.relations.trace.symbols, self.relations.trace.hints
        roots = {symbols[place]: size for place, size in wanted.items() if place in symbols}
        if len(roots) < len(wanted) or not roots.keys() <= set(self.relations.roots):
            return
        more = 0
        while any(size + more < hints[root] for root, size in roots.items()):
            yield {root: min(size + more, hints[root]) for root, size in roots.items()}
            more += 1 if more < 8 else more

    def _found_anchors(self) -> dict[Any, int]:
        found: dict[Any, int] = {}
        symbols = self.relations.trace.symbols
        for place, position in notable_positions(self.case).items():
            symbol = symbols.get(place)
            if symbol is not None:
                formula = self.relations.formula(symbol)
                found[formula] = max(position, found.get(formula, 0))
        return found


def notable_positions(case: Case) -> dict[SizePlace, int]:
    """Return the position of the notable element of each tensor that has one, by dimension."""
    return {
        place.at(dim): position
        for place, value in placed_values(case)
        if isinstance(value, torch.Tensor)
        for dim, position in enumerate(notable_index(value) or ())
    }


def relations_made(facts: Facts) -> WeakKeyDictionary[GraphModule, Relations]:
    """Return the relations of graphs that were made by shrinking others.

    They need no run with symbols. One best case hands them on to the next.
    """
    made = facts.handed_on.setdefault("sizes", WeakKeyDictionary[GraphModule, Relations]())
    return cast("WeakKeyDictionary[GraphModule, Relations]", made)


@dataclass(frozen=True, slots=True)
class Untraceable:
    """Fake tensors cannot run the case, so that its sizes have no relations; `why` in one line."""

    why: str


def sizing_of(case: Case, facts: Facts) -> Sizing | Untraceable:
    """Return the sizes of a case, or the reason why fake tensors cannot run it."""
    if "sizing" not in facts.notes:
        known = relations_made(facts).get(case.graph)
        facts.notes["sizing"] = Sizing(case, known) if known else _sizing(case)
    found = facts.notes["sizing"]
    assert isinstance(found, Sizing | Untraceable)
    return found


def _sizing(case: Case) -> Sizing | Untraceable:
    try:
        sizing = Sizing(case, solve_relations(trace_sizes(case)))
    except Exception as error:
        # Data decides, an operator has no fake implementation, or a size is NaN.
        return Untraceable(error_line(error))
    if sizing.check({}) is None:
        return Untraceable("it does not run on them as it is")
    return sizing


@dataclass(frozen=True, slots=True)
class Resize:
    """One wanted change of size. If `new` is not valid, the least valid number above it."""

    place: SizePlace
    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.place}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class ShrinkDimensions:
    """Make sizes smaller; all sizes that depend on them follow, through the whole graph.

    Attributes:
        alone: Change no other size: equal sizes may become unequal (a size of 1 broadcasts).
        from_start: Keep the first elements; else those around a notable element.
    """

    resizes: tuple[Resize, ...]
    alone: bool = False
    from_start: bool = False

    def says(self) -> str:
        return ", ".join(map(str, self.resizes))

    def apply(self, case: Case, facts: Facts) -> Case | None:
        sizing = sizing_of(case, facts)
        if isinstance(sizing, Untraceable):
            return None
        wanted = {resize.place: resize.new for resize in self.resizes}
        sizes = wanted if self.alone else sizing.smallest(wanted)
        checked = None if sizes is None else sizing.check(sizes)
        if checked is not None and self.alone:  # fake tensors broadcast where operators refuse to
            checked = dataclasses.replace(checked, is_sure=False)
        if sizes is None or checked is None:
            return None
        starts = partial(sizing.start, notable=not self.from_start)
        made = with_sizes(case, facts, sizes, checked=checked, starts=starts)
        if made is not None and not self.alone:
            relations_made(facts)[made.graph] = resize_relations(sizing.relations, sizes)
        return made


@dataclass(frozen=True, slots=True)
class CutDimensions:
    """Make dimensions of inputs and constants smaller, and nothing else; an eager run checks it."""

    resizes: tuple[Resize, ...]

    def says(self) -> str:
        return ", ".join(map(str, self.resizes))

    def apply(self, case: Case, facts: Facts) -> Case | None:
        sizes = {resize.place: resize.new for resize in self.resizes}
        last = notable_positions(case)

        def start(place: SizePlace, size: int) -> int:
            return window_start(last.get(place, 0), size)

        return with_sizes(case, facts, sizes, checked=Checked({}, is_sure=False), starts=start)
