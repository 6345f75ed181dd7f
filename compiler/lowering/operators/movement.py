"""Lowerings of operators that put elements elsewhere: joined, padded, repeated, cut in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    At,
    apply,
    cast,
    constant,
    equal,
    guarded,
    iota,
    moved,
    positions,
    reshaped,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.ir import Position
from ctk.compiler.lowering.operators.axes import all_of, axis_of, joined, moved_along
from ctk.compiler.lowering.operators.overloads import overloads
from ctk.compiler.sizes.index import (
    ONE,
    ZERO,
    Index,
    IndexLike,
    as_index,
    is_nonnegative,
    larger,
    product,
    smaller,
)
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of

aten = torch.ops.aten


def _cat(b: Builder, parts: Sequence[Array], dim: int = 0) -> Array:
    """Join; an empty tensor of one dimension joins with everything."""
    dtype = b.result.dtype
    rank = max(len(part.shape) for part in parts)
    given = [cast(part, dtype) for part in parts if len(part.shape) == rank]
    full = [part for part in given if part.shape[dim % rank] != ZERO]
    return joined(full or given[:1], dim % rank)


def _stack(b: Builder, parts: Sequence[Array], dim: int = 0) -> Array:
    axis = dim % (len(parts[0].shape) + 1)
    dtype = b.result.dtype

    def with_axis(part: Array) -> Array:
        shape = (*part.shape[:axis], ONE, *part.shape[axis:])
        return moved(cast(part, dtype), shape, lambda at: [*at[:axis], *at[axis + 1 :]])

    return joined([with_axis(part) for part in parts], axis)


def _constant_pad(_: Builder, x: Array, pad: Sequence[Any], value: Any = 0) -> Array:
    """Pad; a negative number cuts off."""
    shape, shifts = list(x.shape), [ZERO] * len(x.shape)
    conditions: list[tuple[str, int, Index]] = []
    for pair in range(len(pad) // 2):
        axis = len(x.shape) - 1 - pair
        before, after = as_index(pad[2 * pair]), as_index(pad[2 * pair + 1])
        shape[axis] = x.shape[axis] + before + after
        shifts[axis] = before
        if not is_nonnegative(-before):
            conditions.append(("ge", axis, before))
        if not is_nonnegative(-after):
            conditions.append(("lt", axis, x.shape[axis] + before))
    whole = tuple(shape)
    inside = moved(x, whole, lambda at: [i - s for i, s in zip(at, shifts, strict=True)])
    if not conditions:
        return inside
    tests = [apply(name, iota(whole, axis), positions(limit)) for name, axis, limit in conditions]
    return guarded(all_of(tests), inside, constant(value, x.dtype, whole))


def _flip(_: Builder, x: Array, dims: Sequence[int]) -> Array:
    axes = {axis_of(x, dim) for dim in dims}

    def back(at: At) -> list[Index]:
        return [x.shape[a] - 1 - i if a in axes else i for a, i in enumerate(at)]

    return moved(x, x.shape, back)


def _roll(_: Builder, x: Array, shifts: Any, dims: Sequence[int] = ()) -> Array:
    by = [shifts] if not isinstance(shifts, (list, tuple)) else list(shifts)
    if not dims:
        flat = reshaped(x, (product(x.shape),))
        return reshaped(_rolled(flat, {0: as_index(by[0])}), x.shape)
    total: dict[int, Index] = {}
    for dim, shift in zip(dims, by, strict=True):
        axis = axis_of(x, dim)
        total[axis] = total.get(axis, ZERO) + shift
    return _rolled(x, total)


def _rolled(x: Array, shifts: Mapping[int, Index]) -> Array:
    def back(at: At) -> list[IndexLike]:
        return [_wrapped(i, shifts[a], x.shape[a]) if a in shifts else i for a, i in enumerate(at)]

    return moved(x, x.shape, back)


def _wrapped(place: Index, shift: Index, size: Index) -> Index:
    if size == ZERO:
        return place
    return (place + (size - shift % size)) % size


def _repeat(_: Builder, x: Array, repeats: Sequence[Any]) -> Array:
    lead = len(repeats) - len(x.shape)
    sizes = (*[ONE] * lead, *x.shape)
    shape = tuple(size * each for size, each in zip(sizes, repeats, strict=True))

    def back(at: At) -> list[Index]:
        own = zip(at[lead:], x.shape, strict=True)
        return [i % size if size != ZERO else i for i, size in own]

    return moved(x, shape, back)


def _bounds(size: Index, start: Any, end: Any) -> tuple[Index, Index]:
    first = _bound(size, ZERO if start is None else as_index(start))
    last = size if end is None or end == 2**63 - 1 else _bound(size, as_index(end))
    return first, larger(last, first)


def _bound(size: Index, value: Index) -> Index:
    if is_nonnegative(value):
        return smaller(value, size)
    if is_nonnegative(-value - 1):
        return larger(value + size, ZERO)
    raise NotLowered(f"its bound {value} may be negative or not")


def _within(shape: tuple[Index, ...], axis: int, first: Index, last: Index, step: int) -> Array:
    here = iota(shape, axis)
    tests = [here < positions(last)]
    if first != ZERO:
        tests.append(here >= positions(first))
    if step != 1:
        rest = Array(shape, torch.int64, lambda at: Position((at[axis] - first) % step))
        tests.append(equal(rest, 0))
    return all_of(tests)


def _slice_scatter(
    b: Builder, x: Array, source: Array, dim: int = 0, start: Any = None, end: Any = None,
    step: int = 1,
) -> Array:  # fmt: skip
    axis = axis_of(x, dim)
    first, last = _bounds(x.shape[axis], start, end)
    part = moved(source, x.shape, lambda at: moved_along(at, axis, (at[axis] - first) // step))
    return guarded(_within(x.shape, axis, first, last, step), cast(part, x.dtype), x)


def _select_scatter(b: Builder, x: Array, source: Array, dim: int, index: Any) -> Array:
    axis = axis_of(x, dim)
    chosen = as_index(index)
    if not is_nonnegative(chosen):
        chosen = chosen + x.shape[axis]
    part = moved(source, x.shape, lambda at: [*at[:axis], *at[axis + 1 :]])
    is_chosen = equal(iota(x.shape, axis), positions(chosen))
    return guarded(is_chosen, cast(part, x.dtype), x)


def _diagonal_scatter(
    _: Builder, x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Array:
    """Replace the diagonal of `x` by the last dimension of `source`."""
    one, two = axis_of(x, dim1), axis_of(x, dim2)

    def back(at: At) -> list[IndexLike]:
        rest = [i for a, i in enumerate(at) if a not in (one, two)]
        return [*rest, at[one] if offset >= 0 else at[two]]

    row, column = iota(x.shape, one), iota(x.shape, two)
    on_it = equal(column, row + offset if offset else row)
    return guarded(on_it, cast(moved(source, x.shape, back), x.dtype), x)


def _gradient(scatter: Callable[..., Array]) -> Callable[..., Array]:
    """Return the lowering of the gradient of a part: zeros with the part scattered into them."""

    def lower(b: Builder, grad: Array, sizes: Sequence[Any], *args: Any, **kwargs: Any) -> Array:
        zero = constant(0, grad.dtype, tuple(map(as_index, sizes)))
        return scatter(b, zero, grad, *args, **kwargs)

    return lower


def _diag_embed(b: Builder, x: Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Array:
    zero = constant(0, x.dtype, sizes_of(b.result.shape))
    return _diagonal_scatter(b, zero, x, offset, dim1, dim2)


def _triangle(name: str) -> Callable[..., Array]:
    def lower(_: Builder, x: Array, diagonal: int = 0) -> Array:
        row, column = iota(x.shape, len(x.shape) - 2), iota(x.shape, len(x.shape) - 1)
        inside = apply(name, column - row, constant(diagonal, torch.int64))
        return guarded(inside, x, constant(0, x.dtype))

    return lower


def _as_result(b: Builder, x: Array, *_: object, **__: object) -> Array:
    """The same elements in row-major order, in the shape of the result."""
    return reshaped(x, sizes_of(b.result.shape))


def _permute(_: Builder, x: Array, dims: Sequence[int]) -> Array:
    order = [axis_of(x, dim) for dim in dims]

    def back(at: At) -> list[Index]:
        return [at[order.index(axis)] for axis in range(len(order))]

    return moved(x, tuple(x.shape[axis] for axis in order), back)


TABLE: Mapping[object, Callable[..., Array]] = {
    aten._reshape_copy.default: _as_result,
    aten.cat.default: _cat,
    aten.constant_pad_nd.default: _constant_pad,
    aten.diag_embed.default: _diag_embed,
    aten.diagonal_backward.default: _gradient(_diagonal_scatter),
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.flip.default: _flip,
    aten.permute_copy.default: _permute,
    aten.repeat.default: _repeat,
    aten.roll.default: _roll,
    aten.select_backward.default: _gradient(_select_scatter),
    aten.select_scatter.default: _select_scatter,
    aten.slice_backward.default: _gradient(_slice_scatter),
    aten.slice_scatter.default: _slice_scatter,
    **overloads(aten.squeeze_copy, "default dim dims", _as_result),
    aten.stack.default: _stack,
    aten.tril.default: _triangle("le"),
    aten.triu.default: _triangle("ge"),
    aten.unsqueeze_copy.default: _as_result,
    aten.view_copy.default: _as_result,
}
