"""Lowerings of operators on lists of tensors, as optimizers call them: each by itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.functions import TABLE as FUNCTIONS
from ctk.compiler.lowering.operators.overloads import in_order
from ctk.compiler.lowering.operators.pointwise import TABLE as POINTWISE

aten = torch.ops.aten
_ONE = {**POINTWISE, **FUNCTIONS}


def _each(operator: object) -> Callable[..., list[Array]]:
    """Return the lowering of an operator on each tensor of a list.

    Further lists have an operand for each tensor; other arguments go to every call.
    """
    lowering = _ONE[operator]

    def own(value: Any, number: int) -> Any:
        return value[number] if isinstance(value, (list, tuple)) else value

    def lower(b: Builder, *args: Any, **kwargs: Any) -> list[Array]:
        listed = next(arg for arg in args if isinstance(arg, (list, tuple)))
        return [
            lowering(
                b,
                *(own(arg, number) for arg in args),
                **{name: own(value, number) for name, value in kwargs.items()},
            )
            for number in range(len(listed))
        ]

    return lower


def _overload(name: str, overload: str) -> Any:
    return getattr(getattr(aten, name), overload)


_OVERLOADS: Sequence[tuple[str, Mapping[str, str]]] = (
    ("abs exp log neg reciprocal rsqrt sigmoid sign sqrt tanh", {"default": "default"}),
    ("add div mul sub", {"List": "Tensor", "Scalar": "Scalar", "ScalarList": "Scalar"}),
    ("add div mul", {"Tensor": "Tensor"}),
    ("addcdiv addcmul", {"Scalar": "default", "ScalarList": "default"}),
    ("clamp_max clamp_min", {"List": "Tensor", "Scalar": "default"}),
    ("lerp", {"List": "Tensor", "Scalar": "Scalar"}),
    ("pow", {"List": "Tensor_Tensor", "Scalar": "Tensor_Scalar", "ScalarList": "Tensor_Scalar"}),
    ("pow", {"ScalarAndTensor": "Scalar"}),
)
"""Names, and for overloads of `aten._foreach_NAME` the overload of `aten.NAME` that each calls."""

TABLE: Mapping[object, Callable[..., list[Array]]] = in_order(
    {
        **{
            _overload(f"_foreach_{name}", many): _each(_overload(name, one))
            for names, overloads in _OVERLOADS
            for name in names.split()
            for many, one in overloads.items()
        },
        aten._foreach_maximum.List: _each(aten.maximum.default),
        aten._foreach_maximum.Scalar: _each(aten.clamp_min.default),
        aten._foreach_minimum.List: _each(aten.minimum.default),
        aten._foreach_minimum.Scalar: _each(aten.clamp_max.default),
    }
)
