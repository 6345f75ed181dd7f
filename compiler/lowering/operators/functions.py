"""Lowerings of functions of floats, and of rounding and signs."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from ctk.compiler.lowering.arrays import (
    Array,
    apply,
    cast,
    constant,
    equal,
    filled,
    raised,
    where,
)
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.overloads import in_order, overloads
from ctk.compiler.lowering.operators.pointwise import binary
from ctk.compiler.lowering.operators.promotion import Operand, operand, operands, promoted
from ctk.compiler.lowering.vocabulary import FUNCTIONS, ROUNDING
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten


def _floating(x: Array) -> Array:
    return operands(x, to_float=True)[0]


def _of_floats(function: Callable[[Array], Array]) -> Callable[[Builder, Array], Array]:
    """Return the lowering of a function of floats; integers become floats."""

    def lower(_: Builder, x: Array) -> Array:
        return function(_floating(x))

    return lower


def _rounding(name: str) -> Callable[[Builder, Array], Array]:

    def lower(_: Builder, x: Array) -> Array:
        return apply(name, raised(x)) if x.dtype.is_floating_point else x

    return lower


def _round_decimals(b: Builder, x: Array, *, decimals: int = 0) -> Array:
    if not decimals or not x.dtype.is_floating_point:
        return _rounding("round")(b, x)
    wide, power = raised(x), 10.0 ** abs(decimals)
    if decimals < 0:
        return apply("round", wide / power) * power
    return apply("round", wide * power) / power


def _frac(_: Builder, x: Array) -> Array:
    wide = raised(x)
    return wide - apply("trunc", wide)


def _sign(_: Builder, x: Array) -> Array:
    return x if x.dtype == torch.bool else apply("sign", raised(x))


def _heaviside(_: Builder, x: Array, values: Array) -> Array:
    wide, middle = raised(x), raised(values)
    return where(equal(wide, 0), middle, cast(wide > 0, wide.dtype))


def _xlogy(name: str) -> Callable[[Builder, Operand, Operand], Array]:
    """Return the lowering of `x * log(y)`, which is 0.0 for x = -0.0 too, and NaN for y = NaN."""

    def lower(_: Builder, x: Operand, y: Operand) -> Array:
        left, right = operands(x, y, to_float=True)
        product = where(equal(left, 0), 0.0, left * apply(name, right))
        return where(apply("isnan", right), right, product)

    return lower


def _logaddexp(exp: str, log: str, scale: float) -> Callable[[Builder, Array, Array], Array]:
    """Return the lowering of the log of a sum of powers."""

    def lower(_: Builder, x: Array, y: Array) -> Array:
        left, right = operands(x, y, to_float=True)
        same_infinity = apply("isinf", left) & apply("eq", left, right)
        apart = apply(log, apply(exp, -apply("abs", left - right)))
        total = apply("maximum", left, right) + (apart * scale if scale != 1 else apart)
        return where(same_infinity, left, total)

    return lower


def _nan_to_num(
    _: Builder, x: Array, nan: Any = None, posinf: Any = None, neginf: Any = None
) -> Array:
    if not x.dtype.is_floating_point:
        return x
    limits = torch.finfo(x.dtype)
    wide = raised(x)
    high = limits.max if posinf is None else float(posinf)
    low = limits.min if neginf is None else float(neginf)
    bounded = where(equal(wide, math.inf), high, where(equal(wide, -math.inf), low, wide))
    return where(apply("isnan", wide), 0.0 if nan is None else float(nan), bounded)


def _logit(_: Builder, x: Array, eps: float | None = None) -> Array:
    wide = _floating(x)
    if eps is not None:
        wide = where(wide < eps, eps, where(wide > 1 - eps, 1 - eps, wide))
    return apply("log", wide / (1 - wide))


def _sinc(_: Builder, x: Array) -> Array:
    wide = _floating(x)
    turn = wide * math.pi
    return where(equal(wide, 0), 1.0, apply("sin", turn) / turn)


def _entropy(_: Builder, x: Array) -> Array:
    wide = _floating(x)
    outside = where(equal(wide, 0), filled(wide, 0), -math.inf)
    inside = where(wide > 0, -wide * apply("log", wide), outside)
    return where(apply("isnan", wide), wide, inside)


def _nextafter(_: Builder, x: Array, y: Array) -> Array:
    dtype = promoted([x, y])
    if dtype.itemsize < 4:
        raise NotLowered("the next number of 16 bits is not computed in 32")
    return apply("nextafter", cast(x, dtype), cast(y, dtype))


def _ldexp(_: Builder, x: Array, y: Array) -> Array:
    """Multiply by a power of two, which for integers may be out of the range of the result."""
    dtype = promoted([x, y], to_float=True)
    if y.dtype.is_floating_point:
        power = apply("exp2", operand(y, y.dtype))
        return operand(x, dtype) * operand(cast(power, y.dtype), dtype)  # rounded: may be infinite
    if dtype == torch.float64:
        raise NotLowered("kernels have no wider type for the power")
    places = constant(_FARTHEST, y.dtype) if torch.iinfo(y.dtype).max > _FARTHEST else None
    if places is not None:
        y = apply("minimum", y, places)
    if places is not None and y.dtype.is_signed:
        y = apply("maximum", y, constant(-_FARTHEST, y.dtype))
    return cast(operand(x, torch.float64) * apply("exp2", cast(y, torch.float64)), raised(x).dtype)


_FARTHEST = 512
"""So many places more and every float32 but 0 has become infinite, or has become 0."""


TABLE: Mapping[object, Callable[..., Array]] = in_order(
    {
        **{getattr(aten, name).default: _rounding(name) for name in ROUNDING},
        **{
            getattr(aten, name).default: _of_floats(partial(apply, name))
            for name, n in FUNCTIONS.items()
            if n == 1
        },
        aten.atan2.default: binary("atan2", to_float=True),
        **overloads(aten.copysign, "Scalar Tensor", binary("copysign", to_float=True)),
        aten.deg2rad.default: _of_floats(lambda x: x * (math.pi / 180)),
        aten.frac.default: _frac,
        aten.heaviside.default: _heaviside,
        aten.hypot.default: binary("hypot", to_float=True),
        aten.ldexp.Tensor: _ldexp,
        aten.logaddexp.default: _logaddexp("exp", "log1p", 1.0),
        aten.logaddexp2.default: _logaddexp("exp2", "log1p", 1 / math.log(2)),
        aten.logit.default: _logit,
        aten.nan_to_num.default: _nan_to_num,
        aten.nextafter.default: _nextafter,
        aten.rad2deg.default: _of_floats(lambda x: x * (180 / math.pi)),
        aten.reciprocal.default: _of_floats(lambda x: 1 / x),
        aten.round.decimals: _round_decimals,
        aten.sgn.default: _sign,
        aten.sign.default: _sign,
        aten.sinc.default: _sinc,
        aten.special_entr.default: _entropy,
        **overloads(aten.special_xlog1py, "default other_scalar self_scalar", _xlogy("log1p")),
        **overloads(aten.xlogy, "Scalar_Other Scalar_Self Tensor", _xlogy("log")),
    }
)
