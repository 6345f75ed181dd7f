"""The functions that a stored schedule may call, by name, and back.

    aten.mm.default            a registered operator, of any library
    torch.mm                   torch's own binding of one
    operator.getitem, math.ceil, torch.sym_max, ...     arithmetic of sizes
    fitted, required, ...      helpers of ctk

Other functions (a closure, most operators with graphs) cannot be stored.
"""

import math
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from ctk.compiler.errors import ArtifactError
from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.process import strided_tensors

_OF_OPERATOR = (
    "getitem", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs",
    "eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "not_", "xor", "lshift", "rshift",
)  # fmt: skip
_OF_MATH = ("ceil", "floor", "trunc", "sqrt", "pow", "log2", "exp", "log")
_OF_TORCH = (
    "mm", "addmm", "bmm", "baddbmm", "convolution", "sym_max", "sym_min", "sym_float", "sym_int",
    "sym_not", "sym_ite", "sym_sum", "sym_sqrt", "_sym_sqrt",
)  # fmt: skip


GRAPH_CALLERS = frozenset(
    {"cond", "invoke_subgraph", "map_impl", "scan", "while_loop", "while_loop_stack_output"}
)
"""Operators that call their graphs with tensors and sizes, once or one call after the other.

The graphs may be compiled, and are stored as well. Other operators call their graphs under a
transform (`associative_scan`), or read their nodes.
"""


@cache
def _functions_by_name() -> Mapping[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {
        "fitted": fitted,
        "required": required,
        "reinterpret": strided_tensors.reinterpret(),
        "storage_offset": Tensor.storage_offset,
        **{each.__name__: each for each in (max, min, int, float, bool, round, abs)},
    }
    modules = (("operator", operator, _OF_OPERATOR), ("math", math, _OF_MATH))
    for module, namespace, names in (*modules, ("torch", torch, _OF_TORCH)):
        values = ((name, getattr(namespace, name, None)) for name in names)
        found.update({f"{module}.{name}": each for name, each in values if each is not None})
    return found


@cache
def _names() -> Mapping[Callable[..., Any], str]:
    return {function: name for name, function in reversed([*_functions_by_name().items()])}


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function.

    Raises:
        ArtifactError: It has none.
    """
    kind = operators.kind_of(function)
    if kind == "overload":
        return str(function)
    if kind == "higher_order" and str(function) in GRAPH_CALLERS:
        return f"higher_order.{function}"
    name = None if kind else _names().get(function)
    if name is None:
        what = "an operator with graphs" if kind == "higher_order" else "a function"
        raise ArtifactError(f"{function} is {what} that cannot be stored")
    return name


def function_of(name: str) -> Callable[..., Any]:
    """Return the function of a name.

    Raises:
        ArtifactError: This process has none of that name.
    """
    if name in _functions_by_name():
        return _functions_by_name()[name]
    parts = name.split(".")
    if parts[0] == "higher_order" and parts[-1] in GRAPH_CALLERS:
        return cast("Callable[..., Any]", operators.higher_order_op(parts[-1]))
    if len(parts) == 3 and operators.is_registered(f"{parts[0]}::{parts[1]}"):
        found = getattr(getattr(getattr(torch.ops, parts[0]), parts[1]), parts[2], None)
        if found is not None:
            return found
    raise ArtifactError(
        f"the operator {name} is not registered in this process: import the module that registers "
        "it first"
    )
