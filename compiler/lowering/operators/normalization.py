"""Lowerings of normalizations; their gradients are in `normalization_gradients.py`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, constant, moved, reshaped
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import count_of
from ctk.compiler.sizes.index import ONE, ZERO, Index, as_index, product
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten


def of_channels(values: Array, rank: int) -> Array:
    """Return one number for each channel, axis 1, as an array that broadcasts with the input."""
    shape = tuple(values.shape[0] if axis == 1 else ONE for axis in range(rank))
    return moved(values, shape, lambda at: (at[1],))


def per_channel(values: Array) -> Array:
    """Return the result of a reduction over all axes but 1 as an array of one dimension."""
    axes = range(len(values.shape))
    channels = (values.shape[1],)
    return moved(values, channels, lambda at: [at[0] if axis == 1 else ZERO for axis in axes])


def _moments(b: Builder, x: Array, axes: Sequence[int], eps: float) -> tuple[Array, Array, Array]:
    mean, m2 = b.reduce("mean_m2", x, axes, keepdim=True)
    variance = m2 / count_of([x.shape[axis] for axis in axes], x.dtype)
    return mean, variance, apply("rsqrt", variance + eps)


def _affine(x: Array, weight: Array | None, bias: Array | None) -> Array:
    if weight is not None:
        x = x * cast(weight, x.dtype)
    return x if bias is None else x + cast(bias, x.dtype)


def _layer_norm(
    b: Builder, x: Array, shape: Sequence[Any], weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    wide = b.accumulated(x)
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    mean, _, rstd = _moments(b, wide, axes, eps)
    return _affine((wide - mean) * rstd, weight, bias), mean, rstd


def _rms_norm(
    b: Builder, x: Array, shape: Sequence[Any], weight: Array | None, eps: float | None
) -> tuple[Array, Array]:
    wide = b.accumulated(x)
    axes = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    squares = b.reduce("sum", wide * wide, axes, keepdim=True)[0]
    mean = squares / count_of([x.shape[axis] for axis in axes], wide.dtype)
    rstd = apply("rsqrt", mean + (torch.finfo(x.dtype).eps if eps is None else eps))
    return _affine(wide * rstd, weight, None), rstd


def _batch_norm(
    b: Builder, x: Array, weight: Array | None, bias: Array | None, mean: Array | None,
    variance: Array | None, training: bool, momentum: float, eps: float,
) -> tuple[Array | None, ...]:  # fmt: skip
    """Return the result, mean and 1/deviation of the batch, and the running ones renewed."""
    wide = b.accumulated(x)
    rank = len(x.shape)
    scale, shift = (None if p is None else of_channels(p, rank) for p in (weight, bias))
    if not training:
        assert mean is not None and variance is not None
        center = cast(of_channels(mean, rank), wide.dtype)
        rstd = 1 / apply("sqrt", cast(of_channels(variance, rank), wide.dtype) + eps)
        nothing = constant(0, wide.dtype, (ZERO,))
        return _affine((wide - center) * rstd, scale, shift), nothing, nothing, mean, variance
    axes = [axis for axis in range(rank) if axis != 1]
    center, spread, rstd = _moments(b, wide, axes, eps)
    count = count_of([x.shape[axis] for axis in axes], wide.dtype)
    unbiased = spread * (count / (count - 1))
    running = [
        None
        if old is None
        else momentum * per_channel(new) + (1 - momentum) * cast(old, wide.dtype)
        for new, old in ((center, mean), (unbiased, variance))
    ]
    result = _affine((wide - center) * rstd, scale, shift)
    return result, per_channel(center), per_channel(rstd), *running


def _batch_norm_without_training(
    b: Builder, x: Array, weight: Array | None, bias: Array | None, mean: Array, variance: Array,
    momentum: float, eps: float,
) -> tuple[Array | None, ...]:  # fmt: skip
    return _batch_norm(b, x, weight, bias, mean, variance, False, momentum, eps)[:3]


def _batch_norm_without_stats(
    b: Builder, x: Array, weight: Array | None, bias: Array | None, training: bool,
    momentum: float, eps: float,
) -> tuple[Array | None, ...]:  # fmt: skip
    return _batch_norm(b, x, weight, bias, None, None, training, momentum, eps)[:3]


def _batch_norm_with_writes(
    b: Builder, x: Array, weight: Array | None, bias: Array | None, mean: Array | None,
    variance: Array | None, training: bool, momentum: float, eps: float,
) -> tuple[Array | None, ...]:  # fmt: skip
    if training and mean is not None:
        raise NotLowered("it renews the running statistics in place")
    return _batch_norm(b, x, weight, bias, mean, variance, training, momentum, eps)[:3]


def in_groups(x: Array, batch: Any, groups: int) -> Array:
    """Return an array as [batch, groups, elements of a group]."""
    size = product(x.shape[1:]) // groups
    return reshaped(x, (as_index(batch), as_index(groups), size))


def _group_norm(
    b: Builder, x: Array, weight: Array | None, bias: Array | None, batch: Any, channels: Any,
    area: Any, groups: int, eps: float,
) -> tuple[Array, Array, Array]:  # fmt: skip
    wide = b.accumulated(x)
    grouped = in_groups(wide, batch, groups)
    mean, _, rstd = _moments(b, grouped, (2,), eps)
    normal = reshaped((grouped - mean) * rstd, x.shape)
    rank = len(x.shape)
    scale, shift = (None if p is None else of_channels(p, rank) for p in (weight, bias))
    flat: tuple[Index, ...] = grouped.shape[:2]
    return _affine(normal, scale, shift), reshaped(mean, flat), reshaped(rstd, flat)


TABLE: Mapping[object, Callable[..., Any]] = {
    aten._fused_rms_norm.default: _rms_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm_without_stats,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_without_training,
    aten.native_batch_norm.default: _batch_norm_with_writes,
    aten.native_group_norm.default: _group_norm,
    aten.native_layer_norm.default: _layer_norm,
}
