"""Take some nodes of a graph out as a graph of their own, with the same names.

    x -> a = relu(x) -> b = sin(a) -> c = add(b, x) -> output(c)

    extract(gm, ["b", "c"]):  operands a, x;  results c;  module(a, x) == (c,)

The graph stays unchanged. The order of effects may change: a write to an operand happens when the
module is called.
"""

import copy
from collections.abc import Collection
from dataclasses import dataclass

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.copy import copy_node, graph_module
from ctk.compiler.fx.walk import attribute_targets, fetch


@dataclass(frozen=True, slots=True)
class Extract:
    """Some nodes of a graph.

    Attributes:
        module: Called with the operands' values; returns a tuple of the results' values.
        operands: Names of the outside nodes whose values are needed, in the order of the graph.
            Attributes (constants, nested graphs) belong to the module instead.
        results: Names of the nodes whose values are used outside, in the order of the graph.
    """

    module: GraphModule
    operands: tuple[str, ...]
    results: tuple[str, ...]


def extract(gm: GraphModule, names: Collection[str], wanted_too: Collection[str] = ()) -> Extract:
    """Return the named nodes of a graph as a graph of their own.

    Args:
        gm: Only read. Tensors, modules and nested graphs are shared.
        wanted_too: Names of nodes among them that are results in any case.
    """
    wanted = frozenset(names)
    inside = {node: None for node in gm.graph.nodes if node.name in wanted}
    needed = {
        operand for node in inside for operand in node.all_input_nodes if operand not in inside
    }
    outside = [node for node in gm.graph.nodes if node in needed]
    results = [
        node
        for node in inside
        if node.name in wanted_too or any(user not in inside for user in node.users)
    ]
    graph, made = Graph(), dict[Node, Node]()
    for node in outside:
        if node.op != "get_attr":
            made[node] = _input(graph, node)
    for node in (*(each for each in outside if each not in made), *inside):
        made[node] = copy_node(graph, node, made.__getitem__)
    operands = tuple(node.name for node in outside if made[node].op == "placeholder")
    graph.output(tuple(made[node] for node in results))
    root = {target: fetch(gm, target) for target in attribute_targets(graph)}
    module = graph_module(root, graph, like=gm)
    return Extract(module, operands, tuple(node.name for node in results))


def fill_between(gm: GraphModule, names: Collection[str]) -> tuple[str, ...]:
    """Return the named nodes and all nodes on paths between them, in the order of the graph."""
    inside = {node for node in gm.graph.nodes if node.name in names}
    after, before = set(inside), set(inside)
    for node in gm.graph.nodes:
        if not after.isdisjoint(node.all_input_nodes):
            after.add(node)
    for node in reversed(gm.graph.nodes):
        if not before.isdisjoint(node.users):
            before.add(node)
    return tuple(node.name for node in gm.graph.nodes if node in after and node in before)


def _input(graph: Graph, node: Node) -> Node:
    """Append an input for the value of a node."""
    new = graph.placeholder(node.name, node.type)
    new.name = node.name
    new.meta = copy.copy(node.meta)
    return new
