"""Keep signs of zero: TorchScript takes -0.0 for 0.0, and `x + 0` for `x`.

It keeps equal constants once, and equal means `==`, for numbers and for tensors. It drops the
addition of a zero that it knows, which makes 0.0 of -0.0 in eager, and arithmetic of complex
numbers with 0 and 1, which makes NaN of infinities. Such values are hidden from it as
attributes that stay when the module is frozen (`NUMBERS`).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate

from ctk.compiler.codegen.torchscript.overloads import overload_nodes
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators

ONE = "ctk_unit"
NUMBERS: Mapping[str, int | float] = {
    "ctk_zero": 0,
    "ctk_zero_float": 0.0,
    "ctk_negative_zero": -0.0,
    ONE: 1,
    "ctk_unit_float": 1.0,
}
"""The value of each hidden attribute."""

_SUMS = ("aten::add", "aten::sub")
_PRODUCTS = ("aten::mul", "aten::div")


def keep_signs(graph: Graph) -> set[str]:
    """Read hidden numbers from attributes, and return their names (numerics: exact).

    Cases:
        1. any operand -0.0, also in lists and keywords
        2. add(x, 0), sub(x, 0), and for complex results mul(x, 1), div(x, 1)
    """
    read: set[str] = set()
    for node in overload_nodes(graph):
        neutral = _neutral(node)

        def attribute(value: object, node: Node = node, neutral: int | None = neutral) -> Any:
            name = _name(value, neutral)
            if name is None:
                return value
            read.add(name)
            with graph.inserting_before(node):
                return graph.get_attr(name)

        node.args = map_aggregate(node.args, attribute)  # type: ignore[assignment]  # a tuple again
        node.kwargs = {
            key: value if key == "alpha" else map_aggregate(value, attribute)
            for key, value in node.kwargs.items()
        }  # type: ignore[assignment]  # arguments again
    return read


def _neutral(node: Node) -> int | None:
    """Return the number with which TorchScript would drop a call that changes values."""
    name, tensor = operators.qualified_name_of(node.target).partition(".")[0], tensor_of(node)
    if name in _PRODUCTS and tensor is not None and tensor.is_complex():
        return 1
    return 0 if name in _SUMS else None


def _name(value: object, neutral: int | None) -> str | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    sign = math.copysign(1, value)
    is_hidden = value == neutral or (value == 0 and sign < 0)
    found = (each for each, number in NUMBERS.items() if _same(number, value))
    return next(found) if is_hidden else None


def _same(a: float, b: float) -> bool:
    return type(a) is type(b) and a == b and math.copysign(1, a) == math.copysign(1, b)


def signed_zeros(constants: Mapping[str, object]) -> Iterator[str]:
    """Yield the names of tensors with a -0.0 in them: others may be equal to them."""
    for name, value in constants.items():
        if isinstance(value, torch.Tensor) and _has_negative_zero(value):
            yield name


def _has_negative_zero(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or tensor.layout is not torch.strided or tensor.is_meta:
        return False
    with fake.real_compute():
        return bool((torch.signbit(tensor) & (tensor == 0)).any())
