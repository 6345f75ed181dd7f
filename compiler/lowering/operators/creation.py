"""Lowerings of operators that make tensors of numbers."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    Number,
    cast,
    compute_type,
    constant,
    equal,
    iota,
    where,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.overloads import overloads
from ctk.compiler.lowering.operators.promotion import operand
from ctk.compiler.sizes.index import Index
from ctk.compiler.sizes.size_guards import NotLowered, sizes_of

aten = torch.ops.aten


def _number(value: Any) -> Number | Index:
    if not isinstance(value, (bool, int, float, Index)):
        raise NotLowered("its number is known at the call only")
    return value


def _full(b: Builder, size: object, value: Any, **_: object) -> Array:
    return constant(_number(value), b.result.dtype, sizes_of(b.result.shape))


def _new_full(b: Builder, x: object, size: object, value: Any, **_: object) -> Array:
    return _full(b, size, value)


def _filled(value: Number) -> Callable[..., Array]:
    def lower(b: Builder, *_: object, **__: object) -> Array:
        return _full(b, None, value)

    return lower


def _scalar_tensor(b: Builder, value: Any, **_: object) -> Array:
    return constant(_number(value), b.result.dtype)


def _fill(_: Builder, x: Array, value: Any) -> Array:
    if isinstance(value, Array):
        return Array(x.shape, x.dtype, lambda at: cast(value, x.dtype).at(()))
    return constant(_number(value), x.dtype, x.shape)


def _arange(b: Builder, start: Any, end: Any, step: Any = 1, **_: object) -> Array:
    """Numbers in steps; floats are computed as `start + step * position` in their own type."""
    dtype = b.result.dtype
    place = iota(sizes_of(b.result.shape), 0)
    integers = all(isinstance(each, (int, Index)) for each in (start, end, step))
    kind = torch.int64 if integers else compute_type(dtype)
    if not integers and not dtype.is_floating_point:
        raise NotLowered("it makes integers of floats")
    if b.exact and dtype.is_floating_point:
        raise NotLowered(
            "eager counts blocks in float64, and positions within them in the own type"
        )
    counted = cast(place, kind)
    if step != 1:
        counted = counted * operand(_number(step), kind)
    return counted if start == 0 else operand(_number(start), kind) + counted


def _arange_end(b: Builder, end: Any, **_: object) -> Array:
    return _arange(b, 0 if isinstance(end, (int, Index)) else 0.0, end, 1, **_)


def _eye(b: Builder, *_: object, **__: object) -> Array:
    shape = sizes_of(b.result.shape)
    return cast(equal(iota(shape, 0), iota(shape, 1)), b.result.dtype)


def _linspace(b: Builder, start: Any, end: Any, steps: Any, **_: object) -> Array:
    """Count from the nearer end, so that both ends are hit."""
    dtype = b.result.dtype
    if not dtype.is_floating_point or not isinstance(steps, int):
        raise NotLowered("it makes integers of floats, or a number of them known at the call")
    kind = compute_type(dtype)
    first, last = operand(_number(start), kind), operand(_number(end), kind)
    place = iota(sizes_of(b.result.shape), 0)
    if steps < 2:
        return first + cast(place, kind)
    step = (last - first) / (steps - 1)
    upper = last - step * cast(constant(steps - 1, torch.int64) - place, kind)
    return where(place < steps // 2, first + step * cast(place, kind), upper)


TABLE: Mapping[object, Callable[..., Array]] = {
    aten._efficientzerotensor.default: _filled(0),
    aten.arange.default: _arange_end,
    **overloads(aten.arange, "start start_step", _arange),
    **overloads(aten.eye, "default m", _eye),
    **overloads(aten.fill, "Scalar Tensor", _fill),
    aten.full.default: _full,
    aten.full_like.default: _full,
    aten.linspace.default: _linspace,
    aten.new_full.default: _new_full,
    aten.new_ones.default: _filled(1),
    aten.new_zeros.default: _filled(0),
    aten.ones.default: _filled(1),
    aten.ones_like.default: _filled(1),
    aten.scalar_tensor.default: _scalar_tensor,
    aten.zeros.default: _filled(0),
    aten.zeros_like.default: _filled(0),
}
