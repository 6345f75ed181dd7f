"""The graphs that TorchScript must run without its fuser, whose kernels differ from eager.

On a GPU TorchScript fuses elementwise operators from the second call on. Seen in torch 2.11 and
2.13:

    round(0.5)             1.0                 eager rounds halves to even: 0.0
    frac(-0.5)             0.5                 eager cuts: -0.5
    hardshrink(nan)        0.0                 eager keeps NaN
    remainder(2.5, -inf)   nan                 and 0.0 where the divisor is much larger
    lerp(a, b, 1.0)        b with an error     eager has another formula for weights from 0.5 on
    float8                 wrong, or refused   no conversion is known
    int8, int16            (x + 100) > 50      C++ computes in int, and nothing wraps

Not handled: `neg` is left to the fuser, which makes 0.0 of 0.0 where eager has -0.0.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from ctk.compiler.codegen.torchscript.overloads import overload_nodes
from ctk.compiler.codegen.torchscript.refuse import target_name
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.torch_compat.fx import operators

OPERATORS: Mapping[str, str] = {
    "aten::round": "rounds halves away from zero",
    "aten::frac": "goes down instead of towards zero",
    "aten::hardshrink": "loses NaN",
    "aten::remainder": "is wrong for large and infinite divisors",
    "aten::lerp": "has another formula for large weights",
}
"""Operators whose fused form is another one, by their names without the overload."""

DTYPES = frozenset(
    {
        torch.int8,
        torch.int16,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.float8_e5m2fnuz,
        torch.float8_e8m0fnu,
    }
)
"""Element types that fused kernels do not compute in."""


def why_unfused(graph: Graph, example_inputs: Sequence[object]) -> str | None:
    """Return why a graph with its overloads must run unfused; None if it may be fused."""
    for value in example_inputs:
        if isinstance(value, torch.Tensor) and value.dtype in DTYPES:
            return f"an input of {value.dtype}, in which fused kernels do not compute"
    for node in overload_nodes(graph):
        name = operators.qualified_name_of(node.target).partition(".")[0]
        if name in OPERATORS:
            return f"node {node.name} ({target_name(node)}), which fused {OPERATORS[name]}"
        if (dtype := next((each for each in _dtypes(node) if each in DTYPES), None)) is not None:
            return f"node {node.name} gives {dtype}, in which fused kernels do not compute"
    return None


def _dtypes(node: Node) -> Iterator[torch.dtype]:
    arguments: tuple[Any, ...] = (*node.args, *node.kwargs.values())
    yield from (argument for argument in arguments if isinstance(argument, torch.dtype))
    if (value := tensor_of(node)) is not None:
        yield value.dtype
