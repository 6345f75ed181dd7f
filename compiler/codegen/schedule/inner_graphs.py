"""The graphs inside of a graph, which an operator such as `torch.cond` calls.

An operator that calls its graphs as they are gets compiled ones. A graph that several operators
call, or an operator calls by several names, is compiled once.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.codegen.base import BoxedCallable
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import fetch, placeholders
from ctk.compiler.runtime.functions import GRAPH_CALLERS
from ctk.compiler.torch_compat.fx import operators

Compile = Callable[[GraphModule, list[object]], tuple[BoxedCallable, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class InnerGraphs:
    """The compiled graphs inside of a graph.

    Attributes:
        compile: Compiles one, and returns the code of its kernels as well. Raises
            `CodegenUnsupported` if it makes no kernels of it.
        made: The compiled graphs by the name of a constant, which no attribute of `gm` has.
        sources: The code of their kernels, by the same names.
    """

    gm: GraphModule
    compile: Compile
    made: dict[str, BoxedCallable] = field(default_factory=dict[str, BoxedCallable])
    sources: dict[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    _names: dict[int, str | None] = field(default_factory=dict[int, "str | None"])

    def called_by(self, node: Node) -> Mapping[str, str]:
        """Return the constants that a node calls in the place of its operands, by operand.

        It is empty for other nodes, and for a call of which a graph cannot be compiled.
        """
        if (
            operators.kind_of(node.target) != "higher_order"
            or str(node.target) not in GRAPH_CALLERS
        ):
            return {}
        found: dict[str, str] = {}
        for operand in node.all_input_nodes:
            graph = fetch(self.gm, operand.target) if operand.op == "get_attr" else None
            if isinstance(graph, GraphModule):
                name = self._name_of(graph)
                if name is None or node.kwargs:
                    return {}
                found[operand.name] = name
        return found

    def _name_of(self, graph: GraphModule) -> str | None:
        """Return the constant of a graph; None if an input has no type, or no kernels are made."""
        if id(graph) not in self._names:
            self._names[id(graph)] = None
            inputs = [value_of(node) for node in placeholders(graph)]
            if all(isinstance(each, (torch.Tensor, int, torch.SymInt)) for each in inputs):
                with suppress(CodegenUnsupported):
                    compiled, sources = self.compile(graph, inputs)
                    name = f"compiled_graph_{len(self.made)}"
                    self._names[id(graph)] = name
                    self.made[name], self.sources[name] = compiled, sources
        return self._names[id(graph)]

    def constants(self) -> dict[str, object]:
        """Return the compiled graphs as functions of their inputs, one by one."""
        return {name: _unboxed(run) for name, run in self.made.items()}


def _unboxed(run: BoxedCallable) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        return run(list(inputs))

    return call
