"""Decide which nodes TorchScript can take, and word the refusal. Nothing is changed here."""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.properties import base_of
from ctk.compiler.torch_compat.fx import operators

_SAME: tuple[Callable[..., Any], ...] = (
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.truediv, operator.mod,
    operator.neg, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
    operator.and_, operator.or_, operator.getitem, math.floor, math.ceil,
)  # fmt: skip

SYMBOLIC: Mapping[Callable[..., Any], Callable[..., Any]] = {
    **{each: each for each in _SAME},
    torch.sym_max: max,
    torch.sym_min: min,
    torch.sym_float: float,
    torch.sym_int: int,
    torch.sym_sum: sum,
    math.trunc: int,
}
"""Python functions on symbolic sizes, with the function that TorchScript has for each.

Three more are rewritten in `arguments.py` by cases: `operator.pow`, `operator.not_` and
`torch.sym_not`.
"""

BY_CASE: tuple[Callable[..., Any], ...] = (operator.pow, operator.not_, torch.sym_not)

SCALAR_READS = ("aten::_local_scalar_dense.default", "aten::item.default")
"""Ops that return a Python number; `arguments.py` gives them a static type."""


def refusal(node: Node, why: str) -> CodegenUnsupported:
    """Return the exception with a node and the reason why TorchScript cannot take it."""
    return CodegenUnsupported(
        f"TorchScript cannot take node {node.name} ({target_name(node)}): {why}"
    )


def target_name(node: Node) -> str:
    """Return a readable name of a node's target."""
    if operators.kind_of(node.target) in ("overload", "packet"):
        return operators.qualified_name_of(node.target)
    return str(getattr(node.target, "__name__", node.target))


def refuse_unsupported(graph: Graph) -> None:
    """Raise `CodegenUnsupported` for the first node that TorchScript cannot take.

    Cases:
        1. calls of modules and methods: the graph is not at the level of aten operators
        2. higher-order ops (`cond`, `while_loop`, Triton kernels): their nested graphs have no
           TorchScript form
        3. operators outside `aten` and oneDNN's `mkldnn` (`prims`, custom ones): their kernels may
           be Python, whose exceptions TorchScript turns into RuntimeErrors
        4. aten operators that TorchScript has no schema for
        5. aten operators that return nothing (`_assert_scalar`, `_assert_async`): TorchScript drops
           them as dead code
        6. Python functions other than the table `SYMBOLIC`
    """
    for node in graph.nodes:
        why = _why_not(node)
        if why:
            raise refusal(node, why)


def why_not_shared(graph: Graph) -> CodegenUnsupported | None:
    """Return what to raise where results share memory that no input decides.

    TorchScript computes such values once, each on its own.
    """
    decided = set[Node]()  # by inputs
    for node in graph.nodes:
        if node.op == "placeholder" or not decided.isdisjoint(node.all_input_nodes):
            decided.add(node)
    owners: dict[Node, Node] = {}
    for node in graph.output_node().all_input_nodes:
        base = base_of(node)
        owner = owners.setdefault(base, base if base.op == "get_attr" else node)
        if base not in decided and owner is not node:
            return refusal(node, f"a result that shares the memory of the constant {owner.name}")
    return None


def _why_not(node: Node) -> str | None:
    if node.op in ("call_module", "call_method"):
        return f"a {node.op} node; the graph must hold aten operators only"
    if node.op != "call_function":
        return None
    kind = operators.kind_of(node.target)
    if kind == "higher_order":
        return "a higher-order operator; TorchScript has no form for its nested graphs"
    if kind == "packet":
        return "an operator without an overload; the graph must name one (aten.add.Tensor)"
    if kind == "overload":
        return _why_not_overload(node.target)
    known = node.target in SYMBOLIC or node.target in BY_CASE
    return None if known else "a Python function that is not in the table of symbolic arithmetic"


def _why_not_overload(target: object) -> str | None:
    qualified = operators.qualified_name_of(target).rpartition(".")[0]
    if not qualified.startswith(("aten::", "mkldnn::")):
        return "not an aten operator; a Python kernel keeps its exceptions only in eager"
    if not operators.is_registered(qualified):
        return "TorchScript knows no operator of this name"
    declared = operators.declared_by(target)
    if declared is not None and not declared.returns:
        return "an operator that returns nothing, which TorchScript drops as dead code"
    return None
