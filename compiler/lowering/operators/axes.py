"""Dimensions as arguments: which axes they name."""

from collections.abc import Sequence

from ctk.compiler.lowering.arrays import Array


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
