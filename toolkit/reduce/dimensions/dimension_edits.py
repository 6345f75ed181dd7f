"""Edits that make sizes of a case smaller."""

import dataclasses
from dataclasses import dataclass
from functools import partial

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.dimensions.relations import resize_relations
from ctk.toolkit.reduce.dimensions.resized_case import with_sizes
from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.dimensions.sizing import (
    Untraceable,
    notable_positions,
    relations_made,
    sizing_of,
)
from ctk.toolkit.reduce.dimensions.windows import window_start
from ctk.toolkit.reduce.validity import Checked


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
        wanted = {each.place: each.new for each in self.resizes}
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
        sizes = {each.place: each.new for each in self.resizes}
        last = notable_positions(case)

        def start(place: SizePlace, size: int) -> int:
            return window_start(last.get(place, 0), size)

        return with_sizes(case, facts, sizes, checked=Checked({}, is_sure=False), starts=start)
