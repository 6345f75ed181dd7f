"""How an operand lies in memory: a word, and the strides that it means for a shape."""

from collections.abc import Callable, Mapping, Sequence

Strides = tuple[int, ...]


def contiguous(shape: Sequence[int]) -> Strides:
    """Return row-major strides."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _reversed(shape: Sequence[int]) -> Strides:
    return contiguous(shape[::-1])[::-1]


def _swapped(shape: Sequence[int]) -> Strides:
    if len(shape) < 2:
        return contiguous(shape)
    *outer, row, column = shape
    *steps, a, b = contiguous((*outer, column, row))
    return (*steps, b, a)


def _sliced(shape: Sequence[int]) -> Strides:
    return tuple(2 * step for step in contiguous(shape))


def _expanded(shape: Sequence[int]) -> Strides:
    return (0, *contiguous(shape[1:])) if shape else ()


def _expanded_last(shape: Sequence[int]) -> Strides:
    return (*contiguous(shape[:-1]), 0) if shape else ()


def _overlapping(shape: Sequence[int]) -> Strides:
    return tuple(1 for _ in shape)


LAYOUTS: Mapping[str, Callable[[Sequence[int]], Strides]] = {
    "contiguous": contiguous,
    "reversed": _reversed,
    "swapped": _swapped,
    "sliced": _sliced,
    "expanded": _expanded,
    "expanded last": _expanded_last,
    "overlapping": _overlapping,
}
"""The simplest first."""

DENSE = ("contiguous", "reversed", "swapped")
"""Those that symbolic sizes may have."""


def extent(shape: Sequence[int], strides: Strides) -> int:
    """Return how many elements of storage a tensor spans."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
