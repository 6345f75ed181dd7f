"""Lowerings of searches in sorted numbers, as steps without branches.

    place = 0                                        of 1,000 boundaries
    place += 500 if boundaries[place + 499] < x else 0
    place += 250 if boundaries[place + 249] < x else 0   ...   until one boundary is left

Each step halves the rest, whose length does not depend on `x`: so the steps are written out, no
position can be out of range, and many elements are searched side by side. As in eager, a NaN is
behind all boundaries.
"""

from collections.abc import Callable, Mapping, Sequence

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    At,
    apply,
    cast,
    constant,
    filled,
    indirect,
    raised,
    where,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten

FEW = 4
"""So few boundaries are all compared."""

LONGEST = 1 << 24
"""The most boundaries: positions are integers of 32 bits."""


def _bucketize(
    _: Builder, x: Array, boundaries: Array, *, out_int32: bool = False, right: bool = False
) -> Array:
    return _searched(boundaries, x, out_int32=out_int32, right=right)


def _searchsorted(
    _: Builder, boundaries: Array, x: Array, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Array | None = None,
) -> Array:  # fmt: skip
    if sorter is not None:
        raise NotLowered("its boundaries are in another order")
    return _searched(boundaries, x, out_int32=out_int32, right=right or side == "right")


def _searched(boundaries: Array, x: Array, *, out_int32: bool, right: bool) -> Array:
    """Return how many boundaries of its row are below each element; `right`: or equal to it."""
    count = boundaries.shape[-1].number
    if count is None or not 0 < count <= LONGEST or boundaries.dtype != x.dtype:
        raise NotLowered("it is not a known number of boundaries of one type")
    known, wanted = raised(boundaries), raised(x)

    def passed(place: Array, probe: Array, step: int) -> Array:
        """Return a place, a step further where a boundary is not before the element, or NaN."""
        is_before = apply("gt" if right else "ge", _at_places(known, probe), wanted)
        return place + where(is_before, filled(place, 0), filled(place, step))

    place = constant(0, torch.int32, x.shape)
    if count <= FEW:
        for number in range(count):
            place = passed(place, filled(place, number), 1)
        count = 0
    while count:
        half = max(count // 2, 1)
        place = passed(place, place + (half - 1), half)
        count = count - half if count > 1 else 0
    return place if out_int32 else cast(place, torch.int64)


def _at_places(boundaries: Array, places: Array) -> Array:
    """Return the boundary at a place of the row of each element."""
    size, is_line = boundaries.shape[-1], len(boundaries.shape) == 1

    def back(at: At) -> Sequence[Index]:
        return (*(() if is_line else at[:-1]), indirect(places.at(at), size))

    return Array(places.shape, boundaries.dtype, lambda at: boundaries.at(back(at)))


TABLE: Mapping[object, Callable[..., Array]] = {
    aten.bucketize.Tensor: _bucketize,
    aten.searchsorted.Tensor: _searchsorted,
}
