"""Give the graph a signature that TorchScript can type: numbers and tensors in, a tuple out.

The caller handles inputs that nothing reads, inputs and constants that are returned as they are
(eager returns the very object), None and other literals, values returned twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.torchscript.refuse import refusal
from ctk.compiler.fx.types import number_type
from ctk.compiler.fx.walk import fetch


@dataclass(frozen=True, slots=True)
class Result:
    """Where one result comes from: the script's or the inputs' `index`-th, or a fixed `value`."""

    kind: Literal["computed", "input", "fixed"]
    index: int = -1
    value: object = None


@dataclass(frozen=True, slots=True)
class ScriptSignature:
    """How to call the script and put its results together.

    Attributes:
        inputs: Positions of the graph's inputs that the script takes, in order.
        container: The type that holds the results; None for a single result outside of one.
    """

    inputs: tuple[int, ...]
    count: int
    results: tuple[Result, ...]
    container: type[tuple[object, ...]] | type[list[object]] | None

    def assemble(self, inputs: Sequence[object], computed: Sequence[object]) -> Any:
        """Return the results, of the graph's inputs and the values that the script computed."""
        sources = {"input": inputs, "computed": computed}
        values = [
            result.value if result.kind == "fixed" else sources[result.kind][result.index]
            for result in self.results
        ]
        return values[0] if self.container is None else self.container(values)


def type_signature(
    gm: GraphModule, graph: Graph, example_inputs: Sequence[object]
) -> ScriptSignature:
    """Rewrite placeholders and output of `graph` in place, and return how to call it.

    Unread placeholders go, the others get a type, the output becomes a flat tuple.

    Raises:
        CodegenUnsupported: An input is neither a tensor nor a number, or the results are nested.
    """
    placeholders = graph.find_nodes(op="placeholder")
    results, container = _results(gm, graph, {node: i for i, node in enumerate(placeholders)})
    read: list[int] = []
    for index, (node, example) in enumerate(zip(placeholders, example_inputs, strict=True)):
        if example is None:
            node.replace_all_uses_with(None)  # type: ignore[arg-type]  # FX takes any argument
        if not node.users:
            graph.erase_node(node)
            continue
        node.type = torch.Tensor if isinstance(example, torch.Tensor) else number_type(example)
        if node.type is None:
            raise refusal(node, f"an input of type {type(example).__name__}")
        read.append(index)
    return ScriptSignature(tuple(read), len(placeholders), results, container)


def _results(
    gm: GraphModule, graph: Graph, inputs: Mapping[Node, int]
) -> tuple[tuple[Result, ...], type[tuple[object, ...]] | type[list[object]] | None]:
    output = graph.output_node()
    returned = output.args[0]
    container, items = None, [returned]
    if isinstance(returned, (list, tuple)):
        container, items = (list if isinstance(returned, list) else tuple), list(returned)
    computed: dict[Node, int] = {}
    results = tuple(_result(output, item, gm, inputs, computed) for item in items)
    output.args = (tuple(computed),)
    return results, container


def _result(
    output: Node,
    item: object,
    gm: GraphModule,
    inputs: Mapping[Node, int],
    computed: dict[Node, int],
) -> Result:
    if not isinstance(item, Node):
        if isinstance(item, (list, tuple, dict)):
            raise refusal(output, "nested results")
        return Result("fixed", value=item)
    if item in inputs:
        return Result("input", inputs[item])
    if item.op == "get_attr":
        return Result("fixed", value=fetch(gm, item.target))
    return Result("computed", computed.setdefault(item, len(computed)))
