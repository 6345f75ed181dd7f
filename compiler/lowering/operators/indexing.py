"""Lowerings of gathers and scatters: positions that other tensors hold.

A position out of range raises in eager. Here it stands as an `Indirect` with the size that it must
be under; `index`, `index_put`, `index_fill` and `take` count negative ones from the end, all others
ask for 0 and more.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    At,
    apply,
    broadcast_shape,
    cast,
    constant,
    expand,
    indirect,
    moved,
    raised,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.ir import StoreMode
from ctk.compiler.lowering.layout import unflatten
from ctk.compiler.lowering.operators.axes import axis_of, moved_along
from ctk.compiler.lowering.operators.overloads import overloads
from ctk.compiler.lowering.operators.promotion import operand
from ctk.compiler.sizes.index import Index, product
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten


def _gather(_: Builder, x: Array, dim: int, index: Array, **__: object) -> Array:
    if not x.shape:
        return moved(x, index.shape, lambda _: ())
    if not index.shape:
        return moved(x, (), lambda at: (indirect(index.at(at), x.shape[0]),))
    return moved(x, index.shape, _each_place(x, axis_of(x, dim), index))


def _each_place(x: Array, axis: int, index: Array) -> Callable[[At], Any]:
    """Return the map from positions of `index` to those of `x` with its elements along an axis."""
    return lambda at: moved_along(at, axis, indirect(index.at(at), x.shape[axis]))


def _line_of_places(
    x: Array, axis: int, index: Array, *, wrap: bool = False
) -> Callable[[At], Any]:
    """Return the map to positions of `x` if the numbers along an axis are those of `index`."""

    def where(at: At) -> Any:
        place = index.at((at[axis],) if index.shape else ())
        return moved_along(at, axis, indirect(place, x.shape[axis], wrap=wrap))

    return where


def _index_select(_: Builder, x: Array, dim: int, index: Array) -> Array:
    if not x.shape:
        return x
    axis = axis_of(x, dim)
    return moved(x, _with_length(x, axis, index), _line_of_places(x, axis, index))


def _with_length(x: Array, axis: int, index: Array) -> tuple[Index, ...]:
    return (*x.shape[:axis], product(index.shape), *x.shape[axis + 1 :])


def _embedding(
    _: Builder, weight: Array, indices: Array, padding_idx: Any = -1,
    scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Array:  # fmt: skip
    rank = len(indices.shape)

    def back(at: At) -> Any:
        return indirect(indices.at(at[:rank]), weight.shape[0]), *at[rank:]

    return moved(weight, (*indices.shape, *weight.shape[1:]), back)


def _embedding_gradient(
    b: Builder, grad: Array, indices: Array, count: Any, padding_idx: Any, scale_by_count: bool
) -> Array:
    if scale_by_count:
        raise NotLowered("it counts how often each row is used")
    rank = len(indices.shape)
    start = constant(0, grad.dtype, (count + Index(()), *grad.shape[rank:]))
    whole = moved(indices, grad.shape, lambda at: at[:rank])
    keep = apply("ne", whole, constant(padding_idx, indices.dtype))

    def where(at: At) -> list[Index]:
        return [indirect(indices.at(at[:rank]), start.shape[0]), *at[rank:]]

    return _added(b, start, grad, where, keep)


def _added(
    b: Builder, start: Array, source: Array, where: Callable[[At], Sequence[Any]],
    guard: Array | None = None,
) -> Array:  # fmt: skip
    """Return an array with others added to it; floats of 16 bits are added up in float32."""
    if start.dtype == torch.bool:
        raise NotLowered("bools do not add up")
    wide = raised(start)
    return b.scatter(wide, cast(source, wide.dtype), where, "add", guard)


def _places(
    x: Array, indices: Sequence[Array | None]
) -> tuple[list[Index], Callable[[At], list[Any]]]:
    """Return the shape of an indexed result, and the map from its positions to those of `x`.

    The dimensions of the positions stand where the first of them stands if all are neighbours, and
    first if not.
    """
    given = [axis for axis, index in enumerate(indices) if index is not None]
    chosen = {axis: index for axis, index in enumerate(indices) if index is not None}
    for index in chosen.values():
        if index.dtype in (torch.bool, torch.uint8):
            raise NotLowered("how many elements a mask picks is known at the call only")
    spread = broadcast_shape(*(index.shape for index in chosen.values()))
    neighbours = given == list(range(given[0], given[-1] + 1))
    lead = given[0] if neighbours else 0
    rest = [axis for axis in range(len(x.shape)) if axis not in chosen]
    kept = [x.shape[axis] for axis in rest]
    wide = {axis: expand(index, spread) for axis, index in chosen.items()}

    def where(at: At) -> list[Any]:
        own = at[lead : lead + len(spread)]
        others = dict(zip(rest, (*at[:lead], *at[lead + len(spread) :]), strict=True))
        return [
            indirect(wide[axis].at(own), x.shape[axis], wrap=True) if axis in wide else others[axis]
            for axis in range(len(x.shape))
        ]

    return [*kept[:lead], *spread, *kept[lead:]], where


def _index(_: Builder, x: Array, indices: Sequence[Array | None]) -> Array:
    if not any(index is not None for index in indices):
        return x
    shape, where = _places(x, indices)
    return moved(x, tuple(shape), where)


def _index_put(
    b: Builder, x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False,
    unsafe: bool = False,
) -> Array:  # fmt: skip
    if not any(index is not None for index in indices):
        raise NotLowered("it has no index")
    shape, where = _places(x, indices)
    source = expand(cast(values, x.dtype), tuple(shape))
    return _added(b, x, source, where) if accumulate else b.scatter(x, source, where)


def _take(_: Builder, x: Array, index: Array) -> Array:
    size = product(x.shape)

    def back(at: At) -> At:
        return unflatten(indirect(index.at(at), size, wrap=True), x.shape)

    return moved(x, index.shape, back)


_MODES: Mapping[str, StoreMode] = {
    "none": "set", "sum": "add", "add": "add", "prod": "prod", "multiply": "prod", "amax": "max",
    "amin": "min",
}  # fmt: skip


def _scatter(
    b: Builder, x: Array, dim: int, index: Array, source: Any, reduce: str = "none", *,
    include_self: bool = True,
) -> Array:  # fmt: skip
    if not include_self or reduce not in _MODES:
        raise NotLowered("it needs to know how many elements meet")
    mode = _MODES[reduce]
    if not x.shape or not index.shape:
        raise NotLowered("it has no dimension")
    given = source if isinstance(source, Array) else operand(source, x.dtype)
    part = moved(given, index.shape, (lambda at: at) if given.shape else (lambda _: ()))
    where = _each_place(x, axis_of(x, dim), index)
    if mode == "set":
        return b.scatter(x, cast(part, x.dtype), where)
    if mode == "add":
        return _added(b, x, part, where)
    if x.dtype == torch.bool:
        raise NotLowered("bools have no product")
    wide = raised(x)
    return b.scatter(wide, cast(part, wide.dtype), where, mode)


def _index_add(
    b: Builder, x: Array, dim: int, index: Array, source: Array, *, alpha: Any = 1
) -> Array:
    if not x.shape or not source.shape:
        raise NotLowered("it has no dimension")
    axis = axis_of(x, dim)
    wide = cast(source, raised(x).dtype)
    scaled = wide if alpha == 1 else wide * alpha
    return _added(b, x, scaled, _line_of_places(x, axis, index))


def _index_copy(b: Builder, x: Array, dim: int, index: Array, source: Array) -> Array:
    if not source.shape:
        raise NotLowered("it has no dimension")
    return _copied_along(b, x, dim, index, source, wrap=False)


def _index_fill(b: Builder, x: Array, dim: int, index: Array, value: Any) -> Array:
    number = value if isinstance(value, Array) else operand(value, x.dtype)
    return _copied_along(b, x, dim, index, number, wrap=True)


def _copied_along(
    b: Builder, x: Array, dim: int, index: Array, source: Array, *, wrap: bool
) -> Array:
    """Return an array with another one, broadcast, at some places of a dimension."""
    if not x.shape:
        raise NotLowered("it has no dimension")
    axis = axis_of(x, dim)
    part = expand(cast(source, x.dtype), _with_length(x, axis, index))
    return b.scatter(x, part, _line_of_places(x, axis, index, wrap=wrap))


TABLE: Mapping[object, Callable[..., Array]] = {
    aten._unsafe_index.Tensor: _index,
    aten._unsafe_index_put.default: _index_put,
    aten.embedding.default: _embedding,
    aten.embedding_dense_backward.default: _embedding_gradient,
    aten.gather.default: _gather,
    aten.index.Tensor: _index,
    aten.index_add.default: _index_add,
    aten.index_copy.default: _index_copy,
    **overloads(aten.index_fill, "int_Scalar int_Tensor", _index_fill),
    aten.index_put.default: _index_put,
    aten.index_select.default: _index_select,
    **overloads(aten.scatter, "reduce src value value_reduce", _scatter),
    aten.scatter_add.default: partial(_scatter, reduce="add"),
    aten.scatter_reduce.two: _scatter,
    aten.take.default: _take,
}
