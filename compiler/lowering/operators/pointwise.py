"""Lowerings of elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, constant, raised
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.promotion import Operand, operand, promoted
from ctk.compiler.lowering.sizes import NotLowered

aten = torch.ops.aten


def _function(name: str) -> Callable[[Builder, Array], Array]:
    """Return the lowering of a function of floats; integers become floats."""

    def lowered(_: Builder, x: Array) -> Array:
        return apply(name, operand(x, promoted([x], to_float=True)))

    return lowered


def _unary(name: str) -> Callable[[Builder, Array], Array]:
    """Return the lowering of an operation that integers have, too."""

    def lowered(_: Builder, x: Array) -> Array:
        return apply(name, raised(x))

    return lowered


def _binary(name: str, *, to_float: bool = False) -> Callable[[Builder, Operand, Operand], Array]:
    def lowered(_: Builder, x: Operand, y: Operand) -> Array:
        dtype = promoted([x, y], to_float=to_float)
        return apply(name, operand(x, dtype), operand(y, dtype))

    return lowered


def _comparison(name: str) -> Callable[[Builder, Operand, Operand], Array]:
    return _binary(name)


def _scaled(name: str) -> Callable[..., Array]:
    """Return the lowering of `x + alpha * y` or `x - alpha * y`."""

    def lowered(_: Builder, x: Operand, y: Operand, alpha: Any = 1) -> Array:
        dtype = promoted([x, y])
        left, right = operand(x, dtype), operand(y, dtype)
        if alpha != 1:
            right = apply("mul", right, operand(alpha, dtype))
        return apply("or" if dtype == torch.bool else name, left, right)

    return lowered


def _mul(_: Builder, x: Operand, y: Operand) -> Array:
    dtype = promoted([x, y])
    return apply("and" if dtype == torch.bool else "mul", operand(x, dtype), operand(y, dtype))


def _relu(_: Builder, x: Array) -> Array:
    wide = raised(x)
    return apply("maximum", wide, constant(0, wide.dtype))


def _where(_: Builder, condition: Array, x: Operand, y: Operand) -> Array:
    dtype = promoted([x, y])
    return apply("where", condition, operand(x, dtype), operand(y, dtype))


def _gelu(_: Builder, x: Array, approximate: str = "none") -> Array:
    wide = raised(x)
    half = apply("mul", wide, constant(0.5, wide.dtype))
    if approximate == "tanh":
        cube = apply("mul", apply("mul", wide, wide), wide)
        inner = apply("add", wide, apply("mul", cube, constant(0.044715, wide.dtype)))
        scaled = apply("mul", inner, constant(math.sqrt(2 / math.pi), wide.dtype))
        curve = apply("tanh", scaled)
    else:
        curve = apply("erf", apply("mul", wide, constant(math.sqrt(0.5), wide.dtype)))
    return apply("mul", half, apply("add", curve, constant(1.0, wide.dtype)))


def _to_copy(b: Builder, x: Array, *, dtype: Any = None, device: Any = None, **_: object) -> Array:
    if device is not None and torch.device(device) != b.device:
        raise NotLowered("it copies to another device")
    return x if dtype is None else cast(x, dtype)


def _clone(_: Builder, x: Array, **__: object) -> Array:
    return x


POINTWISE: Mapping[object, Callable[..., Array]] = {
    aten.add.Tensor: _scaled("add"),
    aten.add.Scalar: _scaled("add"),
    aten.sub.Tensor: _scaled("sub"),
    aten.sub.Scalar: _scaled("sub"),
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
    aten.div.Tensor: _binary("div", to_float=True),
    aten.div.Scalar: _binary("div", to_float=True),
    aten.maximum.default: _binary("maximum"),
    aten.minimum.default: _binary("minimum"),
    aten.eq.Tensor: _comparison("eq"),
    aten.eq.Scalar: _comparison("eq"),
    aten.ne.Tensor: _comparison("ne"),
    aten.ne.Scalar: _comparison("ne"),
    aten.lt.Tensor: _comparison("lt"),
    aten.lt.Scalar: _comparison("lt"),
    aten.le.Tensor: _comparison("le"),
    aten.le.Scalar: _comparison("le"),
    aten.gt.Tensor: _comparison("gt"),
    aten.gt.Scalar: _comparison("gt"),
    aten.ge.Tensor: _comparison("ge"),
    aten.ge.Scalar: _comparison("ge"),
    aten.neg.default: _unary("neg"),
    aten.abs.default: _unary("abs"),
    aten.relu.default: _relu,
    aten.exp.default: _function("exp"),
    aten.log.default: _function("log"),
    aten.sqrt.default: _function("sqrt"),
    aten.rsqrt.default: _function("rsqrt"),
    aten.sin.default: _function("sin"),
    aten.cos.default: _function("cos"),
    aten.tanh.default: _function("tanh"),
    aten.erf.default: _function("erf"),
    aten.sigmoid.default: _function("sigmoid"),
    aten.where.self: _where,
    aten.gelu.default: _gelu,
    aten._to_copy.default: _to_copy,
    aten.clone.default: _clone,
}
