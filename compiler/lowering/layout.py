"""Where the elements of tensors are: loops over dimensions, strides, and their order in memory.

The row-major number of a position counts all before it: `(i, j)` of a shape `(n, m)` is `i*m + j`.
"""

from collections.abc import Sequence
from typing import TypeAlias

from ctk.compiler.lowering.ir import Buffer, View
from ctk.compiler.sizes.index import ONE, ZERO, Index, Var, of_atom, product

Shape: TypeAlias = tuple[Index, ...]


def whole(buffer: Buffer) -> View:
    """Return all of a buffer as a view."""
    return View(buffer.name, buffer.dtype, buffer.shape, buffer.strides)


def loop_axes(shape: Shape, prefix: str = "i", chosen: Sequence[int] = ()) -> list[Var]:
    """Return a loop for each dimension; the names of chosen ones begin with `prefix`."""
    names = [f"{prefix if axis in chosen else 'i'}{axis}" for axis in range(len(shape))]
    return [Var(name, size) for name, size in zip(names, shape, strict=True)]


def row_major(shape: Shape) -> tuple[Index, ...]:
    """Return the strides of a dense tensor, its last dimension innermost."""
    return tuple(product(shape[axis + 1 :]) for axis in range(len(shape)))


def memory_order(shape: Shape, strides: tuple[Index, ...]) -> list[int] | None:
    """Return the axes, the innermost in memory last; None of memory with gaps or overlaps."""
    if any(size == ZERO for size in shape):
        return list(range(len(shape)))
    left = [axis for axis in range(len(shape)) if shape[axis] != ONE]
    order: list[int] = []
    step = ONE
    while left:
        axis = next((each for each in reversed(left) if strides[each] == step), None)
        if axis is None:
            return None
        left.remove(axis)
        order.append(axis)
        step = step * shape[axis]
    single = [axis for axis in range(len(shape)) if shape[axis] == ONE]
    return [*single, *reversed(order)]


def flatten(position: Sequence[Index], shape: Sequence[Index]) -> Index:
    """Return the row-major number of a position."""
    total = ZERO
    for where, size in zip(position, shape, strict=True):
        total = total * size + where
    return total


def unflatten(number: Index, shape: Sequence[Index]) -> Shape:
    """Return the position with a row-major number, which is within the shape."""
    at: list[Index] = []
    step = ONE
    for axis in range(len(shape) - 1, -1, -1):
        part = number // step
        at.append(part if axis == 0 else part % shape[axis])
        step = step * shape[axis]
    return tuple(reversed(at))


def number_in(loops: Sequence[Var]) -> Index:
    """Return the row-major number of an iteration of some loops."""
    return flatten([of_atom(loop) for loop in loops], [loop.size for loop in loops])


def iteration(number: Index, loops: Sequence[Var]) -> dict[Var, Index]:
    """Return the values of some loops at the iteration with a row-major number."""
    return dict(zip(loops, unflatten(number, [loop.size for loop in loops]), strict=True))


def extent_of(buffer: Buffer) -> Index:
    """Return how many elements a buffer reaches from its first one to its last."""
    if any(size == ZERO for size in buffer.shape):
        return ZERO
    pairs = zip(buffer.shape, buffer.strides, strict=True)
    return sum(((size - 1) * stride for size, stride in pairs), ONE)
