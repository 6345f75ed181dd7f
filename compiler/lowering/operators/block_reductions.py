"""Reductions of blocks: windows that lie side by side, as in global and adaptive pooling.

    out[i] = max(x[i*8 + r] for r < 8)          a pool of 8 elements, every 8

The spatial dimensions are cut in two, blocks and their elements, and the elements are reduced. The
gradient of an upsampling by a whole factor, which repeats each element, is such a sum.
"""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, At, apply, convert, filled, moved, raised, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.ir import Position, ReduceKind, Value
from ctk.compiler.lowering.layout import Shape, flatten
from ctk.compiler.sizes.index import Index, as_index, product
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten

SHORT = 32
"""Elements of the longest row that has no lanes of its own, and of blocks with one lane each."""


def sum_of_blocks(b: Builder, x: Array, counts: Sequence[Index], widths: Sequence[int]) -> Array:
    """Return the sum of each block of the last dimensions."""
    return _reduced(b, "sum", b.accumulated(_in_blocks(x, counts, widths)), widths)


def largest_of_blocks(
    b: Builder, x: Array, counts: Sequence[Index], widths: Sequence[int]
) -> tuple[Array, Array]:
    """Return the largest element of each block and its position: the first one, the last NaN.

    The positions are computed if they are read.
    """
    blocks = _in_blocks(raised(x), counts, widths)
    best = _reduced(b, "max", blocks, widths)
    spatial = x.shape[-len(widths) :]

    size = product(spatial).number
    kind = torch.int32 if size is not None and size < 1 << 31 else torch.int64

    def place(at: At) -> Position:
        own = at[-2 * len(widths) :]
        inner = zip(own[::2], own[1::2], widths, strict=True)
        return Position(flatten(tuple(i * width + k for i, k, width in inner), spatial), kind)

    places = Array(blocks.shape, kind, place)

    @cache
    def positions() -> Array:
        spread = _spread(best, blocks.shape, len(widths))
        is_best = apply("eq", blocks, spread)
        last = filled(places, torch.iinfo(kind).max)
        first = _reduced(b, "min", where(is_best, places, last), widths)
        if not blocks.dtype.is_floating_point:
            return first
        of_nan = where(apply("isnan", blocks), places, filled(places, -1))
        last_nan = _reduced(b, "max", of_nan, widths)
        return where(last_nan < 0, first, last_nan)

    def position(at: At) -> Value:
        return convert(positions().at(at), torch.int64)

    return best, Array(best.shape, torch.int64, position)


def _in_blocks(x: Array, counts: Sequence[Index], widths: Sequence[int]) -> Array:
    """Return an array with each of the last dimensions as blocks and their elements."""
    lead = x.shape[: -len(widths)]
    pairs = zip(counts, map(as_index, widths), strict=True)
    shape = (*lead, *(size for pair in pairs for size in pair))

    def back(at: At) -> list[Index]:
        own = at[len(lead) :]
        inner = zip(own[::2], own[1::2], widths, strict=True)
        return [*at[: len(lead)], *(i * width + k for i, k, width in inner)]

    return moved(x, shape, back)


def _reduced(b: Builder, kind: ReduceKind, blocks: Array, widths: Sequence[int]) -> Array:
    """Return the reduction of each block.

    Large blocks with short rows are reduced along one dimension after the other, so that the lanes
    of the first and largest step are neighbours in memory.
    """
    lead = len(blocks.shape) - 2 * len(widths)
    axes = [lead + 2 * k + 1 for k in range(len(widths))]
    if widths[-1] > SHORT or math.prod(widths) <= SHORT:
        return b.reduce(kind, blocks, axes)[0]
    result = blocks
    for done, axis in enumerate(axes):
        result = b.reduce(kind, result, [axis - done])[0]
    return result


def _spread(results: Array, shape: Shape, rank: int) -> Array:
    """Return the result of its block for each element."""
    lead = len(shape) - 2 * rank
    return moved(results, shape, lambda at: (*at[:lead], *at[lead::2]))


def _nearest_gradient(
    middle: float, b: Builder, grad: Array, size: Sequence[Any], shape: Sequence[Any],
    *scales: float | None,
) -> Array:  # fmt: skip
    """Add up the gradients of the copies of each element.

    Args:
        middle: The place within an element by which its copies find it.
    """
    counts = [as_index(each) for each in shape[2:]]
    factors = scales or (None,) * len(counts)
    pairs = zip(grad.shape[2:], counts, factors, strict=True)
    widths = [_copies(n.number, count.number, scale, middle) for n, count, scale in pairs]
    return sum_of_blocks(b, grad, counts, widths)


def _copies(size: int | None, count: int | None, scale: float | None, middle: float) -> int:
    """Return how often an upsampling repeats each element of a dimension.

    Raises:
        NotLowered: Not each of them equally often, as far as is known; eager rounds to float32.
    """
    if not size or not count or size % count:
        raise NotLowered("its factor is not a known whole number")
    step, copies = _single(1 / scale if scale else count / size), size // count
    if any(int(_single((i + middle) * step)) != i // copies for i in range(size)):
        raise NotLowered("rounded positions do not repeat elements evenly")
    return copies


def _single(number: float) -> float:
    """Return a number rounded to float32."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


TABLE: Mapping[object, Callable[..., Any]] = {
    **{
        getattr(aten, f"{name}{rank}d_backward").default: partial(_nearest_gradient, middle)
        for name, middle in (("_upsample_nearest_exact", 0.5), ("upsample_nearest", 0.0))
        for rank in (1, 2, 3)
    }
}
