"""Lowerings of comparisons, of logic and of operations on bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, equal, filled, raised
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.promotion import Operand, operand, promoted

aten = torch.ops.aten


def _comparison(name: str) -> Callable[[Builder, Operand, Operand], Array]:
    def lower(_: Builder, x: Operand, y: Operand) -> Array:
        dtype = promoted([x, y])
        return apply(name, operand(x, dtype, rounded=True), operand(y, dtype, rounded=True))

    return lower


def _logic(name: str) -> Callable[[Builder, Array, Array], Array]:
    """Return the lowering of a logical operation, for which all but zero is true."""

    def lower(_: Builder, x: Array, y: Array) -> Array:
        return apply(name, cast(x, torch.bool), cast(y, torch.bool))

    return lower


def _logical_not(_: Builder, x: Array) -> Array:
    return apply("not", cast(x, torch.bool))


def _bitwise(name: str) -> Callable[[Builder, Operand, Operand], Array]:
    def lower(_: Builder, x: Operand, y: Operand) -> Array:
        dtype = promoted([x, y])
        return apply(name, operand(x, dtype), operand(y, dtype))

    return lower


def _bitwise_not(_: Builder, x: Array) -> Array:
    return apply("not", x)


def _number_test(name: str) -> Callable[[Builder, Array], Array]:

    def lower(_: Builder, x: Array) -> Array:
        if not x.dtype.is_floating_point:
            return cast(filled(x, 0), torch.bool)
        return apply(name, raised(x))

    return lower


def _is_infinity(value: float) -> Callable[[Builder, Array], Array]:
    def lower(_: Builder, x: Array) -> Array:
        if not x.dtype.is_floating_point:
            return cast(filled(x, 0), torch.bool)
        return equal(raised(x), value)

    return lower


def _signbit(_: Builder, x: Array) -> Array:
    if x.dtype.is_floating_point:
        return apply("signbit", raised(x))
    return cast(filled(x, 0), torch.bool) if x.dtype == torch.bool else x < 0


TABLE: Mapping[object, Callable[..., Array]] = {
    aten.bitwise_and.Scalar: _bitwise("and"),
    aten.bitwise_and.Scalar_Tensor: _bitwise("and"),
    aten.bitwise_and.Tensor: _bitwise("and"),
    aten.bitwise_left_shift.Tensor: _bitwise("shl"),
    aten.bitwise_left_shift.Tensor_Scalar: _bitwise("shl"),
    aten.bitwise_not.default: _bitwise_not,
    aten.bitwise_or.Scalar: _bitwise("or"),
    aten.bitwise_or.Scalar_Tensor: _bitwise("or"),
    aten.bitwise_or.Tensor: _bitwise("or"),
    aten.bitwise_right_shift.Tensor: _bitwise("shr"),
    aten.bitwise_right_shift.Tensor_Scalar: _bitwise("shr"),
    aten.bitwise_xor.Scalar: _bitwise("xor"),
    aten.bitwise_xor.Scalar_Tensor: _bitwise("xor"),
    aten.bitwise_xor.Tensor: _bitwise("xor"),
    aten.eq.Scalar: _comparison("eq"),
    aten.eq.Tensor: _comparison("eq"),
    aten.ge.Scalar: _comparison("ge"),
    aten.ge.Tensor: _comparison("ge"),
    aten.gt.Scalar: _comparison("gt"),
    aten.gt.Tensor: _comparison("gt"),
    aten.isinf.default: _number_test("isinf"),
    aten.isnan.default: _number_test("isnan"),
    aten.isneginf.default: _is_infinity(-math.inf),
    aten.isposinf.default: _is_infinity(math.inf),
    aten.le.Scalar: _comparison("le"),
    aten.le.Tensor: _comparison("le"),
    aten.logical_and.default: _logic("and"),
    aten.logical_not.default: _logical_not,
    aten.logical_or.default: _logic("or"),
    aten.logical_xor.default: _logic("xor"),
    aten.lt.Scalar: _comparison("lt"),
    aten.lt.Tensor: _comparison("lt"),
    aten.ne.Scalar: _comparison("ne"),
    aten.ne.Tensor: _comparison("ne"),
    aten.signbit.default: _signbit,
}
