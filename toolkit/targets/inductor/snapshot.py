"""Copies of graphs while Inductor is changing them, and a cheap way to see whether it did.

A snapshot keeps node names and metadata, shares tensors and leaf modules with the live graph,
copies sub-graphs, and can always be run: nodes that a pattern left out of order are sorted, and a
node that stands for a lowering (only Inductor can run it) is written out as the operators that it
replaced. It does not execute or compare anything.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler import torch_compat

Swaps = Mapping[GraphModule, GraphModule]
"""Sub-graphs that Inductor works on in a new copy, before it puts the copy into their parent."""

Fingerprint = tuple[object, ...]

NO_SWAPS: Swaps = {}
_LOWERED = "ctk_lowered"


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a lowering node replaced.

    Attributes:
        body: The matched operators; its placeholders are the values that they read from outside,
            in order.
        sources: For each placeholder, its position among the lowering node's flattened arguments.
    """

    body: Graph
    sources: tuple[int, ...]


def fingerprint(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> Fingerprint:
    """Return a value that is equal for graphs with equal nodes in one order (sub-graphs too)."""
    nodes = tuple((n.op, n.name, n.target, str(n.args), str(n.kwargs)) for n in gm.graph.nodes)
    nested = tuple((name, fingerprint(child, swaps)) for name, child in subgraphs(gm, swaps))
    return (nodes, nested)


def snapshot(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> GraphModule:
    """Return a copy of a graph and its sub-graphs that later changes do not touch."""
    graph = _copied(gm.graph)
    names = (str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module"))
    root = {name: _attribute(gm, name) for name in names}
    root.update((name, snapshot(child, swaps)) for name, child in subgraphs(gm, swaps))
    copy = torch_compat.lazy_graph_module(root, graph, "GraphModule")
    copy.training = gm.training
    copy.meta.update(gm.meta)
    return copy


def subgraphs(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> Iterator[tuple[str, GraphModule]]:
    """Yield the graphs that nodes of `gm` refer to, by attribute name, each once."""
    names = (str(n.target) for n in gm.graph.nodes if n.op in ("get_attr", "call_module"))
    for name in dict.fromkeys(names):
        child = _attribute(gm, name)
        if isinstance(child, GraphModule):
            yield name, swaps.get(child, child)


def _attribute(root: object, path: str) -> object:
    for part in path.split("."):
        root = getattr(root, part, None)
    return root


def contains(gm: GraphModule, wanted: GraphModule, swaps: Swaps = NO_SWAPS) -> bool:
    """Return whether `wanted` is `gm` or one of its sub-graphs."""
    return gm is wanted or any(contains(child, wanted, swaps) for _, child in subgraphs(gm, swaps))


def remember_lowered(node: Node, lowered: Lowered) -> None:
    """Write on a lowering node what it stands for; its snapshots show that instead."""
    node.meta[_LOWERED] = lowered


def lowered_body(matched: list[Node], out: Node, arguments: object) -> Lowered | None:
    """Return the operators of a match as a graph of their own.

    Args:
        matched: The matched nodes.
        out: The one whose value the lowering node will give.
        arguments: The args and kwargs of the lowering node to come.

    Returns:
        None when the operators read a value that the lowering node does not get.
    """
    operators = [n for n in dict.fromkeys(matched) if n.op not in ("placeholder", "get_attr")]
    inside = set(operators)
    outside = dict.fromkeys(i for n in operators for i in n.all_input_nodes if i not in inside)
    positions = {
        node: place for place, node in enumerate(_flat(arguments)) if isinstance(node, Node)
    }
    if out not in inside or any(node not in positions for node in outside):
        return None
    body = Graph()
    made = {node: body.placeholder(node.name) for node in outside}
    for node in _sorted(operators, known=set(outside)):
        made[node] = _copied_node(body, node, made)
    body.output(made[out])
    return Lowered(body, tuple(positions[node] for node in outside))


def _copied(graph: Graph) -> Graph:
    copy = Graph()
    made: dict[Node, Node] = {}
    for node in _sorted(list(graph.nodes)):
        lowered = node.meta.get(_LOWERED)
        made[node] = (
            _write_out(copy, node, lowered, made)
            if isinstance(lowered, Lowered)
            else _copied_node(copy, node, made)
        )
    torch_compat.copy_codegen(graph, copy)
    return copy


def _copied_node(graph: Graph, node: Node, made: dict[Node, Node]) -> Node:
    """Copy a node with its name, which FX would change for a builtin's (`sum`) or a taken one."""
    copy = graph.node_copy(node, made.__getitem__)
    if copy.name != node.name:
        copy.name = node.name
    return copy


def _write_out(copy: Graph, node: Node, lowered: Lowered, made: dict[Node, Node]) -> Node:
    """Put the operators that `node` replaced where it stands."""
    leaves: list[Any] = _flat((node.args, node.kwargs))
    inside: dict[Node, Node] = {}
    sources = iter(lowered.sources)
    last = None
    for inner in lowered.body.nodes:
        if inner.op == "placeholder":
            inside[inner] = made[leaves[next(sources)]]
        elif inner.op == "output":
            last = inside[inner.args[0]]
        else:
            inside[inner] = _copied_node(copy, inner, inside)
    if last is None:
        raise AssertionError(f"the operators behind {node.name} have no output")
    return last


def _flat(arguments: object) -> list[object]:
    """Return the leaves of nested arguments in order (FX's own lists, tuples and dicts)."""
    if isinstance(arguments, (list, tuple)):
        return [leaf for item in arguments for leaf in _flat(item)]
    if isinstance(arguments, dict):
        return [leaf for item in arguments.values() for leaf in _flat(item)]
    return [arguments]


def _sorted(nodes: list[Node], known: set[Node] | None = None) -> list[Node]:
    """Return the nodes with operands first; those that are in order already stay as they are."""
    wanted, done = set(nodes), dict.fromkeys(known or ())
    start = len(done)
    for root in nodes:
        stack, opened = [root], set[Node]()
        while stack:
            node = stack[-1]
            missing = [i for i in node.all_input_nodes if i in wanted and i not in done]
            if node in done or node in opened or not missing:
                done.setdefault(stack.pop())
            else:
                opened.add(node)
                stack.extend(reversed(missing))
    return list(done)[start:]


def adopt(live: GraphModule, saved: GraphModule) -> None:
    """Make the graph of `live` the one of `saved`, in place.

    Nodes that both have stay the same objects with their metadata, because Inductor holds on to
    nodes and notes on them what it will need later.
    """
    graph = live.graph
    present = {node.name: node for node in graph.nodes}
    made = {old: _adopted(graph, present.get(old.name), old) for old in saved.graph.nodes}
    for old, node in made.items():
        args = map_arg(old.args, made.__getitem__)
        kwargs = map_arg(old.kwargs, made.__getitem__)
        if node.args != args or node.kwargs != kwargs:
            node.args, node.kwargs = args, kwargs
    _erase(graph, set(made.values()))
    _reorder(graph, list(made.values()))
    children = dict(subgraphs(live))
    for name, child in subgraphs(saved):
        if name in children:
            adopt(children[name], child)
        else:
            live.set_submodule(name, snapshot(child))
    _missing_attributes(live, saved)
    live.recompile()


def _adopted(graph: Graph, node: Node | None, old: Node) -> Node:
    """Return the live node that computes what `old` did, still with its own operands."""
    if node is None or node.op != old.op:
        node = graph.create_node(old.op, old.target, name=old.name, type_expr=old.type)
        node.meta = dict(old.meta)
        node.name = old.name  # FX does not give the name of an erased node again
    elif node.target != old.target:
        node.target = old.target
        node.meta.update(old.meta)
    return node


def _erase(graph: Graph, kept: set[Node]) -> None:
    gone = [node for node in graph.nodes if node not in kept]
    for node in gone:
        node.args, node.kwargs = (), {}
    for node in gone:
        graph.erase_node(node)


def _reorder(graph: Graph, order: list[Node]) -> None:
    """Put the nodes of a graph in this order; it lists all of them."""
    if order == list(graph.nodes):
        return
    next(iter(graph.nodes)).prepend(order[0])
    for before, node in pairwise(order):
        before.append(node)


def _missing_attributes(live: GraphModule, saved: GraphModule) -> None:
    for node in saved.graph.nodes:
        name = str(node.target)
        if node.op == "get_attr" and "." not in name and not hasattr(live, name):
            setattr(live, name, getattr(saved, name))
