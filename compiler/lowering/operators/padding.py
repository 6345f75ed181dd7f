"""Lowerings of pads that repeat elements: reflections and edges, and the gradient of reflections.

Each part of a padded dimension is read by its own index, so that code generators can split the loop
at the borders (`axes.joined`):

    x[l - i]  |  x[i - l]  |  x[2*n - 2 + l - i]
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, constant, guarded, iota, moved, positions, raised
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import moved_along
from ctk.compiler.sizes.index import ONE, ZERO, Index, as_index, is_nonnegative
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten

Pad = Callable[[Array, int, Index, Index], Array]
"""Pads, or takes back a pad, along one axis, by numbers before and after."""


def _along_each(pad: Pad, _: Builder, x: Array, numbers: Sequence[Any]) -> Array:
    result = x
    for pair in range(len(numbers) // 2):
        before, after = as_index(numbers[2 * pair]), as_index(numbers[2 * pair + 1])
        if not (is_nonnegative(before) and is_nonnegative(after)):
            raise NotLowered("it may cut off elements")
        result = pad(result, len(x.shape) - 1 - pair, before, after)
    return result


def _padded(
    places: Callable[[Index, Index, Index], Sequence[Index]],
    x: Array, axis: int, before: Index, after: Index,
) -> Array:  # fmt: skip
    """Return an array with pads along an axis.

    Args:
        places: The positions read before, within and after the array, of the position in the
            result, the size, and the number before.
    """
    size, shape = x.shape[axis], list(x.shape)
    shape[axis] = size + before + after
    whole = tuple(shape)
    here = iota(whole, axis)
    first, middle, last = (
        moved(x, whole, lambda at, part=part: moved_along(
            at, axis, places(at[axis], size, before)[part]
        ))
        for part in range(3)
    )  # fmt: skip
    result = constant(0, x.dtype, whole)
    if after != ZERO:
        result = guarded(here >= positions(size + before), last, result)
    inside = (here >= positions(before)) & (here < positions(size + before))
    result = guarded(inside, middle, result)
    return guarded(here < positions(before), first, result) if before != ZERO else result


def _mirrored(i: Index, size: Index, before: Index) -> Sequence[Index]:
    return before - i, i - before, size * 2 - 2 + before - i


def _at_the_edge(i: Index, size: Index, before: Index) -> Sequence[Index]:
    return ZERO, i - before, size - ONE


def _reflection_gradient(b: Builder, grad: Array, x: Array, numbers: Sequence[Any]) -> Array:
    return _along_each(_folded, b, raised(grad), numbers)


def _folded(grad: Array, axis: int, before: Index, after: Index) -> Array:
    """Return the sum of the parts of a gradient that reflections along an axis pass to it."""
    shape = list(grad.shape)
    shape[axis] = size = grad.shape[axis] - before - after
    whole = tuple(shape)
    here, zero = iota(whole, axis), constant(0, grad.dtype, whole)

    def part(place: Callable[[Index], Index]) -> Array:
        return moved(grad, whole, lambda at: moved_along(at, axis, place(at[axis])))

    total = part(lambda i: i + before)
    if before != ZERO:
        inside = (here >= positions(ONE)) & (here <= positions(before))
        total = total + guarded(inside, part(lambda i: before - i), zero)
    if after != ZERO:
        inside = (here >= positions(size - after - 1)) & (here < positions(size - 1))
        total = total + guarded(inside, part(lambda i: size * 2 - 2 + before - i), zero)
    return total


_reflect = partial(_along_each, partial(_padded, _mirrored))
_repeat_edges = partial(_along_each, partial(_padded, _at_the_edge))

TABLE: Mapping[object, Callable[..., Array]] = {
    aten.reflection_pad1d.default: _reflect,
    aten.reflection_pad1d_backward.default: _reflection_gradient,
    aten.reflection_pad2d.default: _reflect,
    aten.reflection_pad2d_backward.default: _reflection_gradient,
    aten.reflection_pad3d.default: _reflect,
    aten.reflection_pad3d_backward.default: _reflection_gradient,
    aten.replication_pad1d.default: _repeat_edges,
    aten.replication_pad2d.default: _repeat_edges,
    aten.replication_pad3d.default: _repeat_edges,
}
