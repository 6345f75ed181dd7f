"""Lowerings of activation functions; their gradients are in `activation_gradients.py`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, constant, filled, raised, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import axis_of, cut
from ctk.compiler.lowering.operators.pointwise import bounded
from ctk.compiler.lowering.operators.promotion import operand, promoted
from ctk.compiler.sizes.index import ZERO

aten = torch.ops.aten


def logistic(x: Array) -> Array:
    """Return `1 / (1 + exp(-x))`."""
    return 1 / (1 + apply("exp", -x))


def softplus(x: Array, beta: float = 1.0, threshold: float = 20.0) -> Array:
    """Return `log(1 + exp(beta * x)) / beta`, and `x` where that is the same."""
    scaled = x * beta
    return where(scaled > threshold, x, apply("log1p", apply("exp", scaled)) / beta)


def _relu(_: Builder, x: Array) -> Array:
    return bounded("maximum", raised(x), 0, x.dtype)


def _gelu(_: Builder, x: Array, *, approximate: str = "none") -> Array:
    wide = raised(x)
    if approximate == "tanh":
        inner = wide + 0.044715 * (wide * wide * wide)
        curve = apply("tanh", inner * math.sqrt(2 / math.pi))
    else:
        curve = apply("erf", wide * math.sqrt(0.5))
    return wide * 0.5 * (curve + 1)


def _silu(_: Builder, x: Array) -> Array:
    wide = raised(x)
    return wide / (1 + apply("exp", -wide))


def _mish(_: Builder, x: Array) -> Array:
    wide = raised(x)
    return wide * apply("tanh", softplus(wide))


def _hardtanh(_: Builder, x: Array, low: Any = -1, high: Any = 1) -> Array:
    above = bounded("maximum", raised(x), low, x.dtype)
    return bounded("minimum", above, high, x.dtype)


def _sixth(x: Array) -> Array:
    above = apply("maximum", x + 3, filled(x, 0))
    return apply("minimum", above, filled(x, 6))


def _hardsigmoid(_: Builder, x: Array) -> Array:
    return _sixth(raised(x)) / 6


def _hardswish(_: Builder, x: Array) -> Array:
    wide = raised(x)
    return wide * _sixth(wide) / 6


def _leaky_relu(_: Builder, x: Array, slope: Any = 0.01) -> Array:
    wide = raised(x)
    return where(wide > 0, wide, wide * slope)


def _prelu(_: Builder, x: Array, weight: Array) -> Array:
    wide = raised(x)
    return where(wide > 0, wide, raised(weight) * wide)


def _elu(_: Builder, x: Array, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Array:
    wide = raised(x)
    below = apply("expm1", wide * input_scale) * (alpha * scale)
    return where(wide < 0, below, wide * scale)


def _softplus(_: Builder, x: Array, beta: Any = 1, threshold: Any = 20) -> Array:
    return softplus(raised(x), beta, threshold)


def _threshold(_: Builder, x: Array, threshold: Any, value: Any) -> Array:
    dtype = promoted([x])
    wide = raised(x)
    return where(wide <= operand(threshold, dtype), operand(value, dtype), wide)


def _hardshrink(_: Builder, x: Array, limit: Any = 0.5) -> Array:
    wide = raised(x)
    return where((wide >= -limit) & (wide <= limit), 0, wide)


def _softshrink(_: Builder, x: Array, limit: Any = 0.5) -> Array:
    """Shrink towards zero; a NaN stays."""
    wide = raised(x)
    between = where(apply("isnan", wide), wide, 0)
    return where(wide > limit, wide - limit, where(wide < -limit, wide + limit, between))


def _log_sigmoid(b: Builder, x: Array) -> tuple[Array, Array]:
    """Return the result, and the value for backward: empty on a GPU, where it is recomputed."""
    wide = raised(x)
    part = apply("exp", -apply("abs", wide))
    result = apply("minimum", wide, filled(wide, 0)) - apply("log1p", part)
    return result, part if b.device.type == "cpu" else constant(0, wide.dtype, (ZERO,))


def _glu(_: Builder, x: Array, dim: int = -1) -> Array:
    axis = axis_of(x, dim)
    half = x.shape[axis] // 2
    value, gate = cut(x, axis, 0, half), cut(x, axis, half, half)
    return raised(value) * logistic(raised(gate))


TABLE: Mapping[object, Callable[..., Any]] = {
    aten._prelu_kernel.default: _prelu,
    aten.elu.default: _elu,
    aten.gelu.default: _gelu,
    aten.glu.default: _glu,
    aten.hardshrink.default: _hardshrink,
    aten.hardsigmoid.default: _hardsigmoid,
    aten.hardswish.default: _hardswish,
    aten.hardtanh.default: _hardtanh,
    aten.leaky_relu.default: _leaky_relu,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.mish.default: _mish,
    aten.relu.default: _relu,
    aten.silu.default: _silu,
    aten.softplus.default: _softplus,
    aten.softshrink.default: _softshrink,
    aten.threshold.default: _threshold,
}
