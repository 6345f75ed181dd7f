"""Run a graph as it stands, its operators one after the other: what a vetoed kernel does.

Nothing is optimised. Gradient mode, autocast and random state are those of the caller. Some nodes
of a graph run in eager as the module that `fx/extract.py` makes of them.
"""

import operator
from collections.abc import Sequence
from typing import Any

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, check_count


def eager_compile(gm: GraphModule, example_inputs: Sequence[object] = ()) -> BoxedCallable:
    """Return a boxed callable that runs `gm` by FX's generated code.

    FX drops each value after its last use; the inputs are read from the list and the list is
    emptied first, so they die as early. The attributes of `gm` (constants, nested graphs) are
    shared, not copied.
    """
    boxed = GraphModule(gm, _boxed_graph(gm.graph))
    count = len(gm.graph.find_nodes(op="placeholder"))

    forward = boxed.forward

    def run(args: list[Any]) -> Sequence[object]:
        if len(args) != count:
            check_count(args, count)
        return forward(args)

    return as_boxed(run, lambda: boxed.code)


def _boxed_graph(graph: Graph) -> Graph:
    """Return a copy of a graph with one placeholder, the list of inputs, which it empties."""
    copy = Graph()
    inputs = copy.placeholder("inputs")
    placeholders = graph.find_nodes(op="placeholder")
    values: dict[Node, Node] = {}
    for index, node in enumerate(placeholders):
        read = (operator.getitem, (inputs, index))
        values[node] = copy.create_node("call_function", *read, name=node.name)
    if placeholders:
        copy.call_method("clear", (inputs,))
    for node in graph.nodes:
        if node.op != "placeholder":
            values[node] = copy.node_copy(node, lambda old: values[old])
    return copy
