"""The operators of PT2E quantization as functions of ATen, for `decompose`.

    quantize(x)   ->  clamp(round(x * (1 / scale)) + zero_point, low, high), as an integer
    dequantize(n) ->  (n - zero_point) * scale

Scales and zero points are numbers, tensors of one number, or of one for each channel. The bits are
those of torch's Python functions, in which a number has 64 bits until a tensor is scaled by it.
Torch registers these operators when one is first used, so that they are listed by name.

Left to the library: `choose_qparams`, and bounds that are tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

Number: TypeAlias = Tensor | float


def _quantize(
    x: Tensor, scale: Number, zero_point: Number, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    factor = 1.0 / _single(scale, torch.float64)
    factor = factor.to(torch.float32) if isinstance(factor, Tensor) else factor
    moved = torch.round(x.to(torch.float32) * factor) + _single(zero_point, torch.float32)
    return torch.clamp(moved, low, high).to(dtype)


def _dequantize(
    n: Tensor,
    scale: Number,
    zero_point: Number,
    *_: object,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    wide = n.to(out_dtype or torch.float32)
    return (wide - _single(zero_point, wide.dtype)) * _single(scale, wide.dtype)


def _single(number: Number, dtype: torch.dtype) -> Number:
    return number.reshape(()).to(dtype) if isinstance(number, Tensor) else number


def _quantize_channels(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    factors = 1.0 / _along(scales, axis, x.dim())
    moved = torch.round(x.to(torch.float32) * factors) + _along(zero_points, axis, x.dim())
    return torch.clamp(moved, low, high).to(dtype)


def _dequantize_channels(
    n: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    *_: object,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    apart = n if zero_points is None else n - _along(zero_points, axis, n.dim())
    return (apart * _along(scales, axis, n.dim())).to(out_dtype or torch.float32)


def _along(numbers: Tensor, axis: int, rank: int) -> Tensor:
    shape: Sequence[int] = [-1 if each == axis else 1 for each in range(rank)]
    return numbers.reshape(shape)


QUANTIZED: Mapping[str, Callable[..., Any]] = {
    "quantized_decomposed.dequantize_per_channel.default": _dequantize_channels,
    "quantized_decomposed.dequantize_per_tensor.default": _dequantize,
    "quantized_decomposed.dequantize_per_tensor.tensor": _dequantize,
    "quantized_decomposed.quantize_per_channel.default": _quantize_channels,
    "quantized_decomposed.quantize_per_tensor.default": _quantize,
    "quantized_decomposed.quantize_per_tensor.tensor": _quantize,
}
"""By the name of an overload."""
