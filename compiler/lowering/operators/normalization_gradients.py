"""Lowerings of the gradients of normalizations.

With the normalized input h = (x - mean) * rstd, the gradient g of the result and w the weight:

    of x       rstd * (g*w - mean(g*w) - h * mean(g*w * h))
    of weight  sum(g * h)
    of bias    sum(g)

Means are over the normalized axes, sums over the elements that share a weight.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, reshaped
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import count_of
from ctk.compiler.lowering.operators.normalization import in_groups, of_channels
from ctk.compiler.sizes.index import ONE

aten = torch.ops.aten


def _weighted(grad: Array, weight: Array | None) -> Array:
    return grad if weight is None else grad * cast(weight, grad.dtype)


def _of_input(
    b: Builder, grad: Array, normal: Array, rstd: Array, axes: Sequence[int], *, center: bool = True
) -> Array:
    count = count_of([grad.shape[axis] for axis in axes], grad.dtype)
    along = b.reduce("sum", grad * normal, axes, keepdim=True)[0] / count
    less = grad - b.reduce("sum", grad, axes, keepdim=True)[0] / count if center else grad
    return (less - normal * along) * rstd


def _sums(
    b: Builder, grad: Array, normal: Array, axes: Sequence[int], wanted: Sequence[bool]
) -> tuple[Array | None, Array | None]:
    weight = b.reduce("sum", grad * normal, axes)[0] if wanted[0] else None
    return weight, b.reduce("sum", grad, axes)[0] if wanted[1] else None


def _layer_norm(
    b: Builder, grad: Array, x: Array, shape: Sequence[Any], mean: Array | None, rstd: Array,
    weight: Array | None, bias: Array | None, mask: Sequence[bool],
) -> tuple[Array | None, ...]:  # fmt: skip
    """Without a mean, the gradient of an RMS norm."""
    slope, wide = b.accumulated(grad), b.accumulated(x)
    lead = len(x.shape) - len(shape)
    inverse = cast(rstd, wide.dtype)
    normal = (wide if mean is None else wide - cast(mean, wide.dtype)) * inverse
    of_input = None
    if mask[0]:
        inner, weighted = range(lead, len(x.shape)), _weighted(slope, weight)
        of_input = _of_input(b, weighted, normal, inverse, inner, center=mean is not None)
    return of_input, *_sums(b, slope, normal, range(lead), mask[1:])


def _rms_norm(
    b: Builder, grad: Array, x: Array, shape: Sequence[Any], rstd: Array, weight: Array | None,
    mask: Sequence[bool],
) -> tuple[Array | None, ...]:  # fmt: skip
    return _layer_norm(b, grad, x, shape, None, rstd, weight, None, (*mask, False))[:2]


def _batch_norm(
    b: Builder, grad: Array, x: Array, weight: Array | None, mean: Array | None,
    variance: Array | None, batch_mean: Array | None, batch_rstd: Array | None, train: bool,
    eps: float, mask: Sequence[bool],
) -> tuple[Array | None, ...]:  # fmt: skip
    slope, wide = b.accumulated(grad), b.accumulated(x)
    rank = len(x.shape)
    if train:
        assert batch_mean is not None and batch_rstd is not None
        center, inverse = cast(batch_mean, wide.dtype), cast(batch_rstd, wide.dtype)
    else:
        assert mean is not None and variance is not None
        center = cast(mean, wide.dtype)
        inverse = 1 / apply("sqrt", cast(variance, wide.dtype) + eps)
    rstd = of_channels(inverse, rank)
    normal = (wide - of_channels(center, rank)) * rstd
    weighted = _weighted(slope, None if weight is None else of_channels(weight, rank))
    axes = [axis for axis in range(rank) if axis != 1]
    of_input = _of_input(b, weighted, normal, rstd, axes) if train and mask[0] else weighted * rstd
    return of_input, *_sums(b, slope, normal, axes, mask[1:])


def _group_norm(
    b: Builder, grad: Array, x: Array, mean: Array, rstd: Array, weight: Array | None, batch: Any,
    channels: Any, area: Any, groups: int, mask: Sequence[bool],
) -> tuple[Array | None, ...]:  # fmt: skip
    slope, wide = b.accumulated(grad), b.accumulated(x)
    rank = len(x.shape)
    column = (*mean.shape, ONE)
    center, inverse = (cast(reshaped(each, column), wide.dtype) for each in (mean, rstd))
    normal = (in_groups(wide, batch, groups) - center) * inverse
    of_input = None
    if mask[0]:
        weighted = _weighted(slope, None if weight is None else of_channels(weight, rank))
        grouped = in_groups(weighted, batch, groups)
        of_input = reshaped(_of_input(b, grouped, normal, inverse, (2,)), x.shape)
    axes = [axis for axis in range(rank) if axis != 1]
    return of_input, *_sums(b, slope, reshaped(normal, x.shape), axes, mask[1:])


TABLE: Mapping[object, Callable[..., Any]] = {
    aten._fused_rms_norm_backward.default: _rms_norm,
    aten.native_batch_norm_backward.default: _batch_norm,
    aten.native_group_norm_backward.default: _group_norm,
    aten.native_layer_norm_backward.default: _layer_norm,
}
