"""Copies of graphs while Inductor is changing them.

A snapshot is a copy (`fx.copy`) that can always be run: nodes that a pattern left out of order are
sorted, and a node that stands for a lowering, which only Inductor can run, is written out as the
operators that it replaced. So a match that became a lowering

    lowered = <lowering of addmm>(bias, x, w)

is shown as it was before: `mm = mm(x, w)`, `add = add(mm, bias)`. It executes or compares nothing.
"""

from dataclasses import dataclass

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.fx.copy import copy_graph_module, copy_node
from ctk.compiler.fx.walk import NO_SWAPS, Swaps, flat, topological
from ctk.compiler.torch_compat.fx import graphs

_LOWERED = "ctk_lowered"


@dataclass(frozen=True, slots=True)
class Lowered:
    """The operators that a lowering node replaced.

    Attributes:
        body: The matched operators; its placeholders are the values that they read from outside,
            in order.
        sources: For each placeholder, its position among the lowering node's flattened arguments.
    """

    body: Graph
    sources: tuple[int, ...]


def snapshot(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> GraphModule:
    """Return a copy of a graph and its sub-graphs that later changes do not touch."""
    return copy_graph_module(gm, lazy=True, swaps=swaps, copier=_copy_graph)


def _copy_graph(graph: Graph) -> Graph:
    copy = Graph()
    made: dict[Node, Node] = {}
    for node in topological([*graph.nodes], lambda node: node.all_input_nodes):
        lowered = node.meta.get(_LOWERED)
        made[node] = (
            _write_out(copy, node, lowered, made)
            if isinstance(lowered, Lowered)
            else copy_node(copy, node, made.__getitem__)
        )
    graphs.copy_codegen(graph, copy)
    return copy


def _write_out(copy: Graph, node: Node, lowered: Lowered, made: dict[Node, Node]) -> Node:
    """Put the operators that `node` replaced in its place; return the one with its value.

    Raises:
        AssertionError: Those operators have no output, which `extract_lowered_body` never makes.
    """
    leaves = flat((node.args, node.kwargs))
    inside: dict[Node, Node] = {}
    sources = iter(lowered.sources)
    for inner in lowered.body.nodes:
        if inner.op == "output":
            return inside[inner.args[0]]
        if inner.op == "placeholder":
            source = leaves[next(sources)]
            assert isinstance(source, Node), "extract_lowered_body took the positions of nodes"
            inside[inner] = made[source]
        else:
            inside[inner] = copy_node(copy, inner, inside.__getitem__)
    raise AssertionError(f"the operators behind {node.name} have no output")


def remember_lowered(node: Node, lowered: Lowered) -> None:
    """Record on a lowering node the operators that it replaced; snapshots show those."""
    node.meta[_LOWERED] = lowered


def extract_lowered_body(matched: list[Node], out: Node, arguments: object) -> Lowered | None:
    """Return the operators of a match as a graph of their own.

    Args:
        out: The one whose value the lowering node will give.
        arguments: The args and kwargs of the lowering node to come.

    Returns:
        None when the operators read a value that the lowering node does not get.
    """
    operators = [n for n in dict.fromkeys(matched) if n.op not in ("placeholder", "get_attr")]
    inside = set(operators)
    outside = dict.fromkeys(i for n in operators for i in n.all_input_nodes if i not in inside)
    positions = {
        node: place for place, node in enumerate(flat(arguments)) if isinstance(node, Node)
    }
    if out not in inside or any(node not in positions for node in outside):
        return None
    body = Graph()
    made = {node: body.placeholder(node.name) for node in outside}
    for node in topological(operators, lambda node: node.all_input_nodes):
        made[node] = copy_node(body, node, made.__getitem__)
    body.output(made[out])
    return Lowered(body, tuple(positions[node] for node in outside))
