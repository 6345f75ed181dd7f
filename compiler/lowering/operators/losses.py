"""Lowerings of losses and of their gradients."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    apply,
    cast,
    constant,
    equal,
    expand,
    filled,
    guarded,
    indirect,
    iota,
    moved,
    raised,
    where,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import count_of
from ctk.compiler.lowering.operators.promotion import operands
from ctk.compiler.sizes.index import ZERO, Index

aten = torch.ops.aten

_NONE, _MEAN, _SUM = 0, 1, 2
"""How a loss is reduced, as ATen numbers it."""


def _reduced(b: Builder, loss: Array, reduction: int) -> Array:
    if reduction == _NONE:
        return loss
    axes = tuple(range(len(loss.shape)))
    total = b.reduce("sum", b.accumulated(loss), axes)[0]
    return total / count_of(loss.shape, total.dtype) if reduction == _MEAN else total


def _share(grad: Array, x: Array, reduction: int) -> Array:
    wide = raised(grad)
    return wide / count_of(x.shape, wide.dtype) if reduction == _MEAN else wide


def _difference(x: Array, y: Array) -> Array:
    left, right = operands(x, y)
    return left - right


def _mse(b: Builder, x: Array, y: Array, reduction: int = _MEAN) -> Array:
    away = _difference(x, y)
    return _reduced(b, away * away, reduction)


def _mse_gradient(_: Builder, grad: Array, x: Array, y: Array, reduction: int) -> Array:
    away = _difference(x, y)
    return 2 * away * _share(grad, away, reduction)


def _smooth_l1(b: Builder, x: Array, y: Array, reduction: int = _MEAN, beta: float = 1.0) -> Array:
    away = apply("abs", _difference(x, y))
    return _reduced(b, where(away < beta, 0.5 * away * away / beta, away - 0.5 * beta), reduction)


def _smooth_l1_gradient(
    _: Builder, grad: Array, x: Array, y: Array, reduction: int, beta: float
) -> Array:
    away = _difference(x, y)
    share = _share(grad, away, reduction)
    return where(apply("abs", away) < beta, share * away / beta, share * apply("sign", away))


def _huber(b: Builder, x: Array, y: Array, reduction: int = _MEAN, delta: float = 1.0) -> Array:
    away = apply("abs", _difference(x, y))
    loss = where(away < delta, 0.5 * away * away, delta * (away - 0.5 * delta))
    return _reduced(b, loss, reduction)


def _huber_gradient(
    _: Builder, grad: Array, x: Array, y: Array, reduction: int, delta: float
) -> Array:
    away = _difference(x, y)
    share = _share(grad, away, reduction)
    outside = where(away > delta, share * delta, share * away)
    return where(away < -delta, -share * delta, outside)


def _cross_entropy_of_two_gradient(
    _: Builder, grad: Array, x: Array, y: Array, weight: Array | None = None, reduction: int = _MEAN
) -> Array:
    chance, target = operands(x, y)
    spread = (1 - chance) * chance
    slope = raised(grad) * (chance - target) / apply("maximum", spread, filled(spread, 1e-12))
    if weight is not None:
        slope = slope * raised(weight)
    return _share(slope, x, reduction)


def _cross_entropy_with_logits(
    b: Builder, x: Array, y: Array, weight: Array | None = None, pos_weight: Array | None = None,
    reduction: int = _MEAN,
) -> Array:  # fmt: skip
    logit, target = operands(x, y)
    below = apply("minimum", logit, filled(logit, 0))
    log_sigmoid = below - apply("log1p", apply("exp", -apply("abs", logit)))
    if pos_weight is None:
        loss = (1 - target) * logit - log_sigmoid
    else:
        scale = (raised(pos_weight) - 1) * target + 1
        loss = (1 - target) * logit - scale * log_sigmoid
    return _reduced(b, loss if weight is None else loss * raised(weight), reduction)


def _soft_margin(b: Builder, x: Array, y: Array, reduction: int = _MEAN) -> Array:
    left, right = operands(x, y)
    return _reduced(b, apply("log1p", apply("exp", -right * left)), reduction)


def _nll(
    b: Builder, x: Array, target: Array, weight: Array | None, reduction: int, ignore_index: int
) -> tuple[Array, Array]:
    """Pick the target's class, axis 1; `target` has all other axes."""
    wide, shape = raised(x), target.shape
    counts = apply("ne", target, constant(ignore_index, target.dtype))
    classes = x.shape[:2][-1]

    def at_class(at: Any) -> Index:
        return indirect(target.at(at), classes)

    def picked(at: Any) -> list[Index]:
        return [at[0], at_class(at), *at[1:]] if len(x.shape) > 1 else [at_class(at)]

    loss = -moved(wide, shape, picked)
    if weight is None:
        share = cast(counts, wide.dtype)
    else:
        weights = moved(cast(weight, wide.dtype), shape, lambda at: (at_class(at),))
        loss = loss * weights
        share = guarded(counts, weights, filled(loss, 0))
    loss = guarded(counts, loss, filled(loss, 0))
    if reduction == _NONE and len(x.shape) > 1:
        return loss, constant(0, wide.dtype)
    axes = tuple(range(len(shape)))
    total, whole = (b.reduce("sum", b.accumulated(each), axes)[0] for each in (loss, share))
    return (total / whole if reduction == _MEAN else total), whole


def _nll_gradient(
    _: Builder, grad: Array, x: Array, target: Array, weight: Array | None, reduction: int,
    ignore_index: int, total_weight: Array,
) -> Array:  # fmt: skip
    axis = 1 if len(x.shape) > 1 else 0
    counts = apply("ne", target, constant(ignore_index, target.dtype))
    slope = raised(grad)
    if reduction == _MEAN:
        slope = slope / cast(total_weight, slope.dtype)

    def without_class(at: Any) -> list[Index]:
        own = [*at[:axis], *at[axis + 1 :]]
        return own if len(target.shape) == len(own) else [ZERO] * len(target.shape)

    spread = moved(expand(slope, target.shape), x.shape, without_class)
    if weight is not None:
        spread = spread * moved(raised(weight), x.shape, lambda at: (at[axis],))
    own_class = moved(cast(target, torch.int64), x.shape, without_class)
    is_target = equal(iota(x.shape, axis), own_class)
    is_counted = moved(counts, x.shape, without_class)
    return where(is_target & is_counted, -spread, 0)


TABLE: Mapping[object, Callable[..., Any]] = {
    aten.binary_cross_entropy_backward.default: _cross_entropy_of_two_gradient,
    aten.binary_cross_entropy_with_logits.default: _cross_entropy_with_logits,
    aten.huber_loss.default: _huber,
    aten.huber_loss_backward.default: _huber_gradient,
    aten.mse_loss.default: _mse,
    aten.mse_loss_backward.default: _mse_gradient,
    aten.nll_loss2d_backward.default: _nll_gradient,
    aten.nll_loss2d_forward.default: _nll,
    aten.nll_loss_backward.default: _nll_gradient,
    aten.nll_loss_forward.default: _nll,
    aten.smooth_l1_loss.default: _smooth_l1,
    aten.smooth_l1_loss_backward.default: _smooth_l1_gradient,
    aten.soft_margin_loss.default: _soft_margin,
}
