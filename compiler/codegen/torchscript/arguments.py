"""Write arguments, and arithmetic on sizes, as TorchScript wants them. Values stay: exact.

Rules:
    torch.device("cuda", 0)  -> "cuda:0"          TorchScript makes a Device of a string
    inf, nan                 -> float("inf")      FX writes a global that TorchScript cannot see
    1 for a float            -> 1.0               TorchScript does not widen ints
    torch.Size, tuples       -> lists
    True for a Scalar        -> True, dtype=bool  if it has a dtype: TorchScript makes an int of it
    var.correction(x)        -> correction=1      else TorchScript takes `var(x, unbiased)`

    torch.sym_max(a, b)             -> max(a, b)     and so on by the table `SYMBOLIC`
    torch.sym_not(a), not a         -> a == False
    a ** b                          -> a ** b        if the result is a float; there is no int one
    aten._local_scalar_dense(x)     -> int(x)        float(x) or bool(x), by the traced type
    aten.item(x)                    -> the same
"""

import math
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from ctk.compiler.codegen.torchscript.overloads import overload_nodes
from ctk.compiler.codegen.torchscript.refuse import BY_CASE, SCALAR_READS, SYMBOLIC, refusal
from ctk.compiler.fx.types import number_type, value_of
from ctk.compiler.torch_compat.fx import arguments, operators

_DTYPE_FROM_SCALAR = ("aten::full.default", "aten::scalar_tensor.default")
"""Ops that take the dtype of their result from a Scalar unless one is given."""

_SCALAR_DTYPE_FREE = (
    "aten::full_like.default",
    "aten::new_full.default",
    "aten::fill.Scalar",
    "aten::masked_fill.Scalar",
    "aten::index_fill.int_Scalar",
    "aten::constant_pad_nd.default",
    "aten::eq.Scalar",
    "aten::ne.Scalar",
)
"""Ops whose result has the same dtype whether a Scalar is True or 1."""


def adapt_arguments(graph: Graph) -> None:
    """Rewrite the arguments of every op.

    Raises:
        CodegenUnsupported: A bool stands for a Scalar where an int would change the dtype of the
            result.
    """
    for node in overload_nodes(graph):
        types = arguments.names_and_types(node.target)
        by_name = dict(types)
        _state_dtype(node, by_name)
        if "correction" in by_name and node.kwargs.get("correction") is None:
            node.kwargs = {**node.kwargs, "correction": 1}
        with graph.inserting_before(node):
            node.args = tuple(
                _adapted(graph, value, kind)
                for value, (_, kind) in zip(node.args, types, strict=False)
            )
            node.kwargs = {
                name: _adapted(graph, value, by_name[name]) for name, value in node.kwargs.items()
            }


def _adapted(graph: Graph, value: Any, kind: str) -> Any:
    if isinstance(value, (list, tuple)):
        return [_adapted(graph, each, kind) for each in value]
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, int) and not isinstance(value, bool) and "float" in kind:
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return graph.call_function(float, (str(value),))
    return value


def _state_dtype(node: Node, types: dict[str, str]) -> None:
    given = dict(zip(types, node.args, strict=False)) | node.kwargs
    numbers = {name: value_of(value) for name, value in given.items() if types[name] == "number"}
    bools = [name for name, value in numbers.items() if number_type(value) is bool]
    name = operators.qualified_name_of(node.target)
    if not bools or name in _SCALAR_DTYPE_FREE:
        return
    if name not in _DTYPE_FROM_SCALAR:
        raise refusal(
            node, f"a bool as Scalar argument {bools[0]!r}, of which TorchScript makes an int"
        )
    if node.kwargs.get("dtype") is None:
        node.kwargs = {**node.kwargs, "dtype": torch.bool}


def adapt_symbols(graph: Graph) -> None:
    """Rewrite arithmetic on symbolic sizes.

    Raises:
        CodegenUnsupported: A number is read from a tensor and the graph does not say of which type
            it is, or a power is not a float.
    """
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target in SYMBOLIC:
            node.target = SYMBOLIC[node.target]
        elif node.target in BY_CASE:
            _adapt_by_case(node)
        elif (
            operators.kind_of(node.target) == "overload"
            and operators.qualified_name_of(node.target) in SCALAR_READS
        ):
            node.target = _converter(node)


def _adapt_by_case(node: Node) -> None:
    if node.target is not operator.pow:
        node.target, node.args = operator.eq, (node.args[0], False)
    elif number_type(value_of(node)) is not float:
        raise refusal(node, "a power that is not known to be a float; TorchScript's is always one")


def _converter(node: Node) -> type:
    found = number_type(value_of(node))
    if found is None:
        raise refusal(node, "its result is a number of unknown type (no traced value on the node)")
    return found
