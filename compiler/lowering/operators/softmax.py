"""Lowerings of softmax, its logarithm, and their gradients."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, equal, raised, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import axis_of

aten = torch.ops.aten


def total(b: Builder, x: Array, axes: tuple[int, ...]) -> Array:
    """Return a sum over axes that stay, with size 1, in the type of `x`."""
    return cast(b.reduce("sum", b.accumulated(x), axes, keepdim=True)[0], x.dtype)


def _axes(x: Array, dim: int) -> tuple[int, ...]:
    return (axis_of(x, dim),) if x.shape else ()


def _parts(b: Builder, x: Array, dim: int) -> tuple[Array, Array]:
    axes = _axes(x, dim)
    below = x - b.reduce("max", x, axes, keepdim=True)[0]
    return below, total(b, apply("exp", below), axes)


def _softmax(b: Builder, x: Array, dim: int, half_to_float: bool) -> Array:
    below, sum_ = _parts(b, raised(x), dim)
    return apply("exp", below) / sum_


def _safe_softmax(b: Builder, x: Array, dim: int, dtype: Any = None) -> Array:
    """Rows of nothing but -inf become zeros."""
    wide = raised(x if dtype is None else cast(x, dtype))
    axes = _axes(x, dim)
    is_masked = b.reduce("all", equal(wide, -math.inf), axes, keepdim=True)[0]
    return where(is_masked, 0, _softmax(b, wide, dim, half_to_float=False))


def _log_softmax(b: Builder, x: Array, dim: int, half_to_float: bool) -> Array:
    below, sum_ = _parts(b, raised(x), dim)
    return below - apply("log", sum_)


def _softmax_gradient(b: Builder, grad: Array, y: Array, dim: int, dtype: Any) -> Array:
    slope, result = raised(grad), raised(y)
    return (slope - total(b, slope * result, _axes(y, dim))) * result


def _log_softmax_gradient(b: Builder, grad: Array, y: Array, dim: int, dtype: Any) -> Array:
    slope = raised(grad)
    return slope - apply("exp", raised(y)) * total(b, slope, _axes(y, dim))


TABLE: Mapping[object, Callable[..., Array]] = {
    aten._log_softmax.default: _log_softmax,
    aten._log_softmax_backward_data.default: _log_softmax_gradient,
    aten._safe_softmax.default: _safe_softmax,
    aten._softmax.default: _softmax,
    aten._softmax_backward_data.default: _softmax_gradient,
}
