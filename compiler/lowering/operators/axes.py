"""Dimensions as arguments: which axes they name; parts of arrays along an axis."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from ctk.compiler.lowering.arrays import Array, At, cast, constant, guarded, iota, moved, positions
from ctk.compiler.lowering.ir import Dtype
from ctk.compiler.sizes.index import ZERO, Index, IndexLike, as_index, product
from ctk.compiler.sizes.size_guards import NotLowered

MOST_PARTS = 32
"""A loop over more parts is not split at their borders; the library copies them sooner."""


def axis_of(array: Array, dim: int) -> int:
    """Return the axis that a dimension names; a negative one counts from the end."""
    return dim % max(len(array.shape), 1)


def axes_of(array: Array, dims: Sequence[int] | int | None) -> tuple[int, ...]:
    """Return the axes that dimensions name, in order; none, or an empty list, names all."""
    if dims is None or (not isinstance(dims, int) and not dims):
        return tuple(range(len(array.shape)))
    if not array.shape:
        return ()
    named = (dims,) if isinstance(dims, int) else dims
    return tuple(sorted({axis_of(array, dim) for dim in named}))


def count_of(sizes: Sequence[Index], dtype: Dtype) -> Array:
    """Return how many elements there are, as a number of a type."""
    return cast(positions(product(tuple(sizes))), dtype)


def moved_along(at: At, axis: int, where: IndexLike) -> list[IndexLike]:
    """Return a position with another place along an axis."""
    return [where if each == axis else index for each, index in enumerate(at)]


def cut(array: Array, axis: int, start: IndexLike, length: IndexLike) -> Array:
    """Return a part of an array along an axis."""
    shape = list(array.shape)
    shape[axis] = as_index(length)
    return moved(array, tuple(shape), lambda at: moved_along(at, axis, at[axis] + start))


def joined(parts: Sequence[Array], axis: int) -> Array:
    """Return arrays one after the other along an axis.

    Each is read only where it stands, so that code generators can split the loop at the borders.

    Raises:
        NotLowered: There are more than `MOST_PARTS`.
    """
    if len(parts) > MOST_PARTS:
        raise NotLowered(f"it joins more than {MOST_PARTS} parts")
    ends: list[Index] = []
    for part in parts:
        ends.append((ends[-1] if ends else ZERO) + part.shape[axis])
    shape = list(parts[0].shape)
    shape[axis] = ends[-1]
    result = constant(0, parts[0].dtype, tuple(shape))
    where = iota(tuple(shape), axis)
    for part, end in reversed(list(zip(parts, ends, strict=True))):
        start = end - part.shape[axis]
        inside: list[Array] = []
        if start != ZERO:
            inside.append(where >= positions(start))
        if end != ends[-1]:
            inside.append(where < positions(end))
        shifted = _shifted(part, tuple(shape), axis, start)
        result = guarded(all_of(inside), shifted, result) if inside else shifted
    return result


def all_of(conditions: Sequence[Array]) -> Array:
    """Return where all of some conditions hold."""
    return reduce(and_, conditions)


def _shifted(array: Array, shape: tuple[Index, ...], axis: int, start: Index) -> Array:
    return moved(array, shape, lambda at: moved_along(at, axis, at[axis] - start))
