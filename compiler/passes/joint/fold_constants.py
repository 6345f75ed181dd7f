"""Compute at compile time what depends on constants only.

Rule: `op(constants...) -> constant`, a constant being a tensor attribute of the graph, or the
result of a factory with fixed arguments (`full`, `arange`, `scalar_tensor`...). Preconditions:
pure, not random, one tensor result of at most `max_nbytes` or no larger than its operands.
Factories alone stay: they are cheaper than a stored tensor. Exact: the same operator runs on the
same device.

Source: constant folding as in any compiler; Inductor's `constant_fold_uniform_value` folds uniform
values in graphs that are not frozen, this one what is small.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.clone import clone_value
from ctk.compiler.fx.properties import escapes, is_pure
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat import fake, operators


@dataclass(frozen=True, slots=True)
class FoldConstants(Pass):
    """Compute at compile time what depends on constants only.

    Attributes:
        max_nbytes: Size of the largest result that is stored; a result that is no larger than its
            operands is stored in any case.
    """

    name = "fold_constants"
    max_nbytes: int = 1 << 20

    def __post_init__(self) -> None:
        if self.max_nbytes < 0:
            raise ValueError("max_nbytes is a number of bytes from 0")

    def run(self, rewriter: Rewriter) -> None:
        constants = _Constants(rewriter)
        for node in rewriter.nodes():
            if constants.is_foldable(node, self.max_nbytes):
                _fold(rewriter, node, constants)


def _fold(rewriter: Rewriter, node: Node, constants: "_Constants") -> None:
    def edit(graph: Graph) -> None:
        name = _free_name(rewriter.module)
        rewriter.module.register_buffer(name, constants.value(node), persistent=False)
        with graph.inserting_before(node):
            constant = graph.get_attr(name)
        constant.meta.update({k: v for k, v in node.meta.items() if k in ("val", "tensor_meta")})
        node.replace_all_uses_with(constant)
        graph.erase_node(node)

    rewriter.rewrite(f"{node.target}(constants) -> constant", [node], edit)


class _Constants:
    """Which nodes of a graph are constant, and their values (computed on demand, each once)."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._module = rewriter.module
        self._values: dict[Node, torch.Tensor] = {}
        self._known: dict[Node, bool] = {}
        for node in rewriter.graph.nodes:
            self._known[node] = self._is_constant(node)

    def _is_constant(self, node: Node) -> bool:
        if node.op == "get_attr":
            return isinstance(self._attribute(node), torch.Tensor)
        if (
            node.op != "call_function"
            or operators.declared_by(node.target) is None
            or not is_pure(node)
        ):
            return False
        tensor = tensor_of(node)
        if tensor is None or any(fake.is_symbolic(size) for size in tensor.shape):
            return False
        return all(self._known.get(operand, False) for operand in node.all_input_nodes)

    def is_foldable(self, node: Node, max_nbytes: int) -> bool:
        """A constant with operands, of bearable size, that is no output: callers write to those."""
        tensor = tensor_of(node)
        if not self._known.get(node, False) or tensor is None or not node.all_input_nodes:
            return False
        before = sum(t.nbytes for n in node.all_input_nodes if (t := tensor_of(n)) is not None)
        return tensor.nbytes <= max(max_nbytes, before) and not escapes(node)

    def value(self, node: Node) -> torch.Tensor:
        if node not in self._values:
            with fake.real_compute():
                self._values[node] = self._compute(node)
        return self._values[node]

    def _compute(self, node: Node) -> torch.Tensor:
        if node.op == "get_attr":
            return self._attribute(node)  # type: ignore[return-value]  # _is_constant has checked
        args = map_arg(node.args, self.value)
        kwargs = map_arg(node.kwargs, self.value)
        result = node.target(*args, **kwargs)  # type: ignore[operator]  # an overload
        return cast("torch.Tensor", clone_value(result))  # with its strides, which users rely on

    def _attribute(self, node: Node) -> object:
        return fetch(self._module, node.target)


def _free_name(module: torch.nn.Module) -> str:
    index = 0
    while hasattr(module, f"_folded_{index}"):
        index += 1
    return f"_folded_{index}"


PASS = FoldConstants()
