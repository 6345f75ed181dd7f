"""Lowerings of the gradients of activation functions.

Source: the formulas are those of ATen's CPU kernels (`aten/src/ATen/native/cpu/Activation.cpp`,
`BinaryOpsKernel.cpp`), so that roundings differ little.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, raised, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.activations import logistic, softplus
from ctk.compiler.lowering.operators.axes import axis_of, cut, joined
from ctk.compiler.lowering.operators.promotion import operand, promoted

aten = torch.ops.aten


def _threshold(_: Builder, grad: Array, x: Array, threshold: Any) -> Array:
    return where(raised(x) <= threshold, 0, raised(grad))


def _sigmoid(_: Builder, grad: Array, y: Array) -> Array:
    result = raised(y)
    return raised(grad) * (1 - result) * result


def _tanh(_: Builder, grad: Array, y: Array) -> Array:
    result = raised(y)
    return raised(grad) * (1 - result * result)


def _gelu(_: Builder, grad: Array, x: Array, *, approximate: str = "none") -> Array:
    wide = raised(x)
    if approximate == "tanh":
        return raised(grad) * _gelu_slope_tanh(wide)
    below = 0.5 * (1 + apply("erf", wide * math.sqrt(0.5)))
    density = apply("exp", wide * wide * -0.5) * (1 / math.sqrt(2 * math.pi))
    return raised(grad) * (below + wide * density)


def _gelu_slope_tanh(x: Array) -> Array:
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    square = x * x
    curve = apply("tanh", beta * (x + kappa * (square * x)))
    inner = beta * (1 + 3 * kappa * square)
    return 0.5 * (1 + curve) + 0.5 * x * (1 - curve * curve) * inner


def _silu(_: Builder, grad: Array, x: Array) -> Array:
    wide = raised(x)
    part = logistic(wide)
    return raised(grad) * part * (1 + wide * (1 - part))


def _mish(_: Builder, grad: Array, x: Array) -> Array:
    wide = raised(x)
    curve = apply("tanh", softplus(wide))
    return raised(grad) * (curve + wide * logistic(wide) * (1 - curve * curve))


def _hardtanh(_: Builder, grad: Array, x: Array, low: Any, high: Any) -> Array:
    wide = raised(x)
    return where((wide <= low) | (wide >= high), 0, raised(grad))


def _hardsigmoid(_: Builder, grad: Array, x: Array) -> Array:
    wide = raised(x)
    return where((wide > -3) & (wide < 3), raised(grad) * (1 / 6), 0)


def _hardswish(_: Builder, grad: Array, x: Array) -> Array:
    wide, slope = raised(x), raised(grad)
    return where(wide <= -3, 0, where(wide < 3, slope * (wide / 3 + 0.5), slope))


def _leaky_relu(_: Builder, grad: Array, x: Array, slope: Any, is_result: bool) -> Array:
    wide = raised(grad)
    return where(raised(x) > 0, wide, wide * slope)


def _prelu(_: Builder, grad: Array, x: Array, weight: Array) -> tuple[Array, Array]:
    value, slope = raised(x), raised(grad)
    of_input = where(value > 0, slope, raised(weight) * slope)
    return of_input, where(value > 0, 0, value * slope)


def _elu(
    _: Builder, grad: Array, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Array
) -> Array:
    value, slope = raised(x), raised(grad)
    below = slope * input_scale
    if is_result:
        below = below * (value + alpha * scale)
    else:
        below = below * (alpha * scale) * apply("exp", value * input_scale)
    return where(value <= 0, below, slope * scale)


def _softplus(_: Builder, grad: Array, x: Array, beta: Any, threshold: Any) -> Array:
    scaled, slope = raised(x) * beta, raised(grad)
    power = apply("exp", scaled)
    return where(scaled > threshold, slope, slope * power / (power + 1))


def _shrink(_: Builder, grad: Array, x: Array, limit: Any) -> Array:
    wide = raised(x)
    return where((wide >= -limit) & (wide <= limit), 0, raised(grad))


def _log_sigmoid(_: Builder, grad: Array, x: Array, buffer: Array) -> Array:
    """Recompute a value that forward saves on the CPU only."""
    wide = raised(x)
    part = apply("exp", -apply("abs", wide))
    rest = part / (1 + part)
    return raised(grad) * where(wide < 0, 1 - rest, rest)


def _glu(_: Builder, grad: Array, x: Array, dim: int) -> Array:
    axis = axis_of(x, dim)
    half = x.shape[axis] // 2
    value, gate = (raised(cut(x, axis, start, half)) for start in (0, half))
    part, slope = logistic(gate), raised(grad)
    return joined([part * slope, (1 - part) * part * slope * value], axis)


def _logit(_: Builder, grad: Array, x: Array, eps: float | None = None) -> Array:
    wide = raised(x)
    low = 0.0 if eps is None else eps
    slope = raised(grad) / (wide * (1 - wide))
    outside = math.nan if eps is None else 0.0
    return where((wide >= low) & (wide <= 1 - low), slope, outside)


def _dropout(_: Builder, grad: Array, mask: Array, scale: Any) -> Array:
    dtype = promoted([grad, mask, scale])
    return operand(grad, dtype) * operand(mask, dtype) * operand(scale, dtype)


TABLE: Mapping[object, Callable[..., Any]] = {
    aten._prelu_kernel_backward.default: _prelu,
    aten.elu_backward.default: _elu,
    aten.gelu_backward.default: _gelu,
    aten.glu_backward.default: _glu,
    aten.hardshrink_backward.default: _shrink,
    aten.hardsigmoid_backward.default: _hardsigmoid,
    aten.hardswish_backward.default: _hardswish,
    aten.hardtanh_backward.default: _hardtanh,
    aten.leaky_relu_backward.default: _leaky_relu,
    aten.log_sigmoid_backward.default: _log_sigmoid,
    aten.logit_backward.default: _logit,
    aten.mish_backward.default: _mish,
    aten.native_dropout_backward.default: _dropout,
    aten.sigmoid_backward.default: _sigmoid,
    aten.silu_backward.default: _silu,
    aten.softplus_backward.default: _softplus,
    aten.softshrink_backward.default: _shrink,
    aten.tanh_backward.default: _tanh,
    aten.threshold_backward.default: _threshold,
}
