"""Lowerings of comparisons, of logic and of operations on bits."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, equal, filled, raised
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.overloads import overloads
from ctk.compiler.lowering.operators.pointwise import binary, unary

aten = torch.ops.aten


def _logic(name: str) -> Callable[..., Array]:
    """Return the lowering of a logical operation, for which all but zero is true."""

    def lower(_: Builder, *operands: Array) -> Array:
        return apply(name, *(cast(operand, torch.bool) for operand in operands))

    return lower


def _test(test: Callable[[Array], Array]) -> Callable[[Builder, Array], Array]:
    """Return the lowering of a test of floats, which holds for no integer."""

    def lower(_: Builder, x: Array) -> Array:
        return test(raised(x)) if x.dtype.is_floating_point else cast(filled(x, 0), torch.bool)

    return lower


def _signbit(_: Builder, x: Array) -> Array:
    if x.dtype.is_floating_point:
        return apply("signbit", raised(x))
    return cast(filled(x, 0), torch.bool) if x.dtype == torch.bool else x < 0


TABLE: Mapping[object, Callable[..., Array]] = {
    **overloads(aten.bitwise_and, "Scalar Scalar_Tensor Tensor", binary("and")),
    **overloads(aten.bitwise_left_shift, "Tensor Tensor_Scalar", binary("shl")),
    aten.bitwise_not.default: unary("not"),
    **overloads(aten.bitwise_or, "Scalar Scalar_Tensor Tensor", binary("or")),
    **overloads(aten.bitwise_right_shift, "Tensor Tensor_Scalar", binary("shr")),
    **overloads(aten.bitwise_xor, "Scalar Scalar_Tensor Tensor", binary("xor")),
    **overloads(aten.eq, "Scalar Tensor", binary("eq", rounded=True)),
    **overloads(aten.ge, "Scalar Tensor", binary("ge", rounded=True)),
    **overloads(aten.gt, "Scalar Tensor", binary("gt", rounded=True)),
    aten.isinf.default: _test(partial(apply, "isinf")),
    aten.isnan.default: _test(partial(apply, "isnan")),
    aten.isneginf.default: _test(lambda x: equal(x, -math.inf)),
    aten.isposinf.default: _test(lambda x: equal(x, math.inf)),
    **overloads(aten.le, "Scalar Tensor", binary("le", rounded=True)),
    aten.logical_and.default: _logic("and"),
    aten.logical_not.default: _logic("not"),
    aten.logical_or.default: _logic("or"),
    aten.logical_xor.default: _logic("xor"),
    **overloads(aten.lt, "Scalar Tensor", binary("lt", rounded=True)),
    **overloads(aten.ne, "Scalar Tensor", binary("ne", rounded=True)),
    aten.signbit.default: _signbit,
}
