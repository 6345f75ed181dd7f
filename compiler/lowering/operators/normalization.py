"""Lowerings of softmax and of normalizations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, constant, positions, raised
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.index import product
from ctk.compiler.lowering.operators.axes import axis_of

aten = torch.ops.aten


def _softmax(b: Builder, x: Array, dim: int, half_to_float: bool) -> Array:
    wide = raised(x)
    axes = () if not x.shape else (axis_of(x, dim),)
    largest = b.reduce("max", wide, axes, keepdim=True)[0]
    part = apply("exp", apply("sub", wide, largest))
    total = b.reduce("sum", cast(part, b.accumulator(part.dtype)), axes, keepdim=True)[0]
    return apply("div", part, cast(total, part.dtype))


def _layer_norm(
    b: Builder, x: Array, shape: Sequence[Any], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    wide = cast(raised(x), b.accumulator(x.dtype))
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    mean, m2 = b.reduce("mean_m2", wide, axes, keepdim=True)
    count = cast(positions(product([x.shape[axis] for axis in axes])), wide.dtype)
    variance = apply("div", m2, count)
    rstd = apply("rsqrt", apply("add", variance, constant(eps, wide.dtype)))
    result = apply("mul", apply("sub", wide, mean), rstd)
    if weight is not None:
        result = apply("mul", result, cast(weight, wide.dtype))
    if bias is not None:
        result = apply("add", result, cast(bias, wide.dtype))
    return result, mean, rstd


NORMALIZATION: Mapping[object, Callable[..., Any]] = {
    aten._softmax.default: _softmax,
    aten.native_layer_norm.default: _layer_norm,
}
