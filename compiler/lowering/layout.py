"""Where the elements of tensors are: loops over dimensions, strides, and their order in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ctk.compiler.lowering.arrays import Shape
from ctk.compiler.lowering.index import ONE, ZERO, Index, Var, product
from ctk.compiler.lowering.ir import Buffer, View
from ctk.compiler.lowering.sizes import NotLowered


def whole(buffer: Buffer) -> View:
    """Return all of a buffer as a view."""
    return View(buffer.name, buffer.dtype, buffer.shape, buffer.strides)


def loop_axes(shape: Shape, prefix: str = "i", chosen: Sequence[int] = ()) -> list[Var]:
    """Return a loop for each dimension; those that are chosen get a name with `prefix`."""
    names = [f"{prefix if axis in chosen else 'i'}{axis}" for axis in range(len(shape))]
    return [Var(name, size) for name, size in zip(names, shape, strict=True)]


def row_major(shape: Shape) -> tuple[Index, ...]:
    """Return the strides of a dense tensor, its last dimension innermost."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def memory_order(shape: Shape, strides: tuple[Index, ...]) -> list[int]:
    """Return the axes of a dense tensor, the innermost in memory last.

    Raises:
        NotLowered: It has gaps, or overlaps with itself.
    """
    if any(size == ZERO for size in shape):
        return list(range(len(shape)))
    left = [axis for axis in range(len(shape)) if shape[axis] != ONE]
    order: list[int] = []
    step = ONE
    while left:
        axis = next((each for each in reversed(left) if strides[each] == step), None)
        if axis is None:
            raise NotLowered("its memory is not dense")
        left.remove(axis)
        order.append(axis)
        step = step * shape[axis]
    single = [axis for axis in range(len(shape)) if shape[axis] == ONE]
    return [*single, *reversed(order)]


def is_dense(shape: Shape, strides: tuple[Index, ...]) -> bool:
    """Return whether a tensor has no gaps and no overlaps, in any order of its dimensions."""
    try:
        memory_order(shape, strides)
    except NotLowered:
        return False
    return True
