"""Lowerings of operators on lists of tensors, as optimizers call them: each by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.functions import TABLE as FUNCTIONS
from ctk.compiler.lowering.operators.pointwise import TABLE as POINTWISE

aten = torch.ops.aten
_ONE = {**POINTWISE, **FUNCTIONS}


def _each(operator: object) -> Callable[..., list[Array]]:
    """Return the lowering of an operator on each tensor of a list.

    Further lists have an operand for each tensor; other arguments go to every call.
    """
    lowering = _ONE[operator]

    def lower(b: Builder, first: Any, *args: Any, **kwargs: Any) -> list[Array]:
        listed = first if isinstance(first, (list, tuple)) else args[0]
        count = len(listed)

        def own(value: Any, number: int) -> Any:
            return value[number] if isinstance(value, (list, tuple)) else value

        results: list[Array] = []
        for number in range(count):
            given = [own(each, number) for each in (first, *args)]
            named = {name: own(value, number) for name, value in kwargs.items()}
            results.append(lowering(b, *given, **named))
        return results

    return lower


def _with_value(operator: object) -> Callable[..., list[Array]]:
    """Return the lowering of an operator whose last operand is called `value`."""
    each = _each(operator)

    def lower(
        b: Builder, x: Sequence[Array], y: Sequence[Array], z: Sequence[Array], value: Any = 1
    ) -> list[Array]:
        return each(b, x, y, z, value=value)

    return lower


TABLE: Mapping[object, Callable[..., list[Array]]] = {
    aten._foreach_abs.default: _each(aten.abs.default),
    aten._foreach_add.List: _each(aten.add.Tensor),
    aten._foreach_add.Scalar: _each(aten.add.Scalar),
    aten._foreach_add.ScalarList: _each(aten.add.Scalar),
    aten._foreach_add.Tensor: _each(aten.add.Tensor),
    aten._foreach_addcdiv.Scalar: _with_value(aten.addcdiv.default),
    aten._foreach_addcdiv.ScalarList: _with_value(aten.addcdiv.default),
    aten._foreach_addcmul.Scalar: _with_value(aten.addcmul.default),
    aten._foreach_addcmul.ScalarList: _with_value(aten.addcmul.default),
    aten._foreach_clamp_max.List: _each(aten.clamp_max.Tensor),
    aten._foreach_clamp_max.Scalar: _each(aten.clamp_max.default),
    aten._foreach_clamp_min.List: _each(aten.clamp_min.Tensor),
    aten._foreach_clamp_min.Scalar: _each(aten.clamp_min.default),
    aten._foreach_div.List: _each(aten.div.Tensor),
    aten._foreach_div.Scalar: _each(aten.div.Scalar),
    aten._foreach_div.ScalarList: _each(aten.div.Scalar),
    aten._foreach_div.Tensor: _each(aten.div.Tensor),
    aten._foreach_exp.default: _each(aten.exp.default),
    aten._foreach_lerp.List: _each(aten.lerp.Tensor),
    aten._foreach_lerp.Scalar: _each(aten.lerp.Scalar),
    aten._foreach_log.default: _each(aten.log.default),
    aten._foreach_maximum.List: _each(aten.maximum.default),
    aten._foreach_maximum.Scalar: _each(aten.clamp_min.default),
    aten._foreach_minimum.List: _each(aten.minimum.default),
    aten._foreach_minimum.Scalar: _each(aten.clamp_max.default),
    aten._foreach_mul.List: _each(aten.mul.Tensor),
    aten._foreach_mul.Scalar: _each(aten.mul.Scalar),
    aten._foreach_mul.ScalarList: _each(aten.mul.Scalar),
    aten._foreach_mul.Tensor: _each(aten.mul.Tensor),
    aten._foreach_neg.default: _each(aten.neg.default),
    aten._foreach_pow.List: _each(aten.pow.Tensor_Tensor),
    aten._foreach_pow.Scalar: _each(aten.pow.Tensor_Scalar),
    aten._foreach_pow.ScalarAndTensor: _each(aten.pow.Scalar),
    aten._foreach_pow.ScalarList: _each(aten.pow.Tensor_Scalar),
    aten._foreach_reciprocal.default: _each(aten.reciprocal.default),
    aten._foreach_rsqrt.default: _each(aten.rsqrt.default),
    aten._foreach_sigmoid.default: _each(aten.sigmoid.default),
    aten._foreach_sign.default: _each(aten.sign.default),
    aten._foreach_sqrt.default: _each(aten.sqrt.default),
    aten._foreach_sub.List: _each(aten.sub.Tensor),
    aten._foreach_sub.Scalar: _each(aten.sub.Scalar),
    aten._foreach_sub.ScalarList: _each(aten.sub.Scalar),
    aten._foreach_tanh.default: _each(aten.tanh.default),
}
