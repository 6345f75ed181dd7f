"""The order of a graph's nodes beyond operands: writes, draws and modes; and a stable sort.

A node follows its operands and, because of writes, random draws and modes, also nodes whose results
it does not read. `orderings` lists these in time linear in the size of the graph. Storages are
classes of nodes that may share one (all inputs are one class, because they may be aliases).

    y = sin(x); x.add_(1); z = cos(x)      add_ runs after sin, cos runs after add_
"""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError
from itertools import pairwise

from torch.fx import Graph, Node

from ctk.compiler.fx.effects import is_calm, mutated_arguments
from ctk.compiler.fx.properties import is_random, is_view
from ctk.compiler.fx.walk import topological
from ctk.compiler.torch_compat.fx import operators


def sort_stably(graph: Graph) -> bool:
    """Move nodes that precede their operands.

    A late operand moves to its first user; inputs come first, the output comes last, and all other
    nodes keep their order.

    Returns:
        Whether a node was moved.

    Raises:
        graphlib.CycleError: Nodes read each other; or a node would have to move across a write to
            the same memory, a draw or a mode. Its arguments are the reason and the nodes.
    """
    given = list(graph.nodes)
    ranked = sorted(given, key=_part)
    topological(ranked, _operands)  # raises where nodes read each other
    order = _operands_first(ranked)
    if order == given:
        return False
    if order != ranked:
        _require_orderings(ranked, order)
    reorder(graph, order)
    return True


def _part(node: Node) -> int:
    return {"placeholder": 0, "output": 2}.get(node.op, 1)


def _operands(node: Node) -> list[Node]:
    return node.all_input_nodes


def _operands_first(nodes: Iterable[Node]) -> list[Node]:
    done: dict[Node, None] = {}
    for node in nodes:
        waiting = [node]
        while waiting:
            missing = [operand for operand in waiting[-1].all_input_nodes if operand not in done]
            if missing:
                waiting += reversed(missing)
            else:
                done[waiting.pop()] = None
    return [*done]


def _require_orderings(given: Sequence[Node], order: Sequence[Node]) -> None:
    """Raise if a node has moved in front of a node that it must follow and does not feed."""
    place = {node: index for index, node in enumerate(order)}
    for node, behind in orderings(given).items():
        for other in behind:
            if place[other] > place[node] and node not in _ancestors(other):
                raise CycleError("it would move across a write, a draw or a mode", [node, other])


def _ancestors(node: Node) -> set[Node]:
    ancestors, queue = {node}, [node]
    while queue:
        fresh = [operand for operand in queue.pop().all_input_nodes if operand not in ancestors]
        ancestors.update(fresh)
        queue += fresh
    return ancestors


def reorder(graph: Graph, order: Sequence[Node]) -> None:
    """Put all nodes of a graph in this order."""
    if order == list(graph.nodes):
        return
    first = next(iter(graph.nodes))
    if first is not order[0]:
        first.prepend(order[0])
    for before, node in pairwise(order):
        if before.next is not node:
            before.append(node)


def orderings(nodes: Sequence[Node]) -> Mapping[Node, Sequence[Node]]:
    """Return for each node the earlier nodes, besides its operands, that it must follow.

    1. A write to a storage follows the earlier nodes that read or write it, and a reader follows
    the last write; 2. random draws keep their order; 3. a node that sets a mode, runs another graph
    or has unknown effects keeps its place among all nodes.
    """
    storage = _storages(nodes)
    written = {storage(argument) for node in nodes for argument in mutated_arguments(node)}
    found: dict[Node, list[Node]] = {}
    writer: dict[Node, Node] = {}
    readers: dict[Node, list[Node]] = {}
    since: list[Node] = []
    barrier = draw = None
    for node in nodes:
        behind = found.setdefault(node, [])
        behind += [barrier] if barrier is not None else []
        if not is_calm(node) and not _writes(node) and node.op != "output":
            behind += since
            barrier, since = node, []
        since.append(node)
        if is_random(node):
            behind += [draw] if draw is not None else []
            draw = node
        mine = {storage(each) for each in (node, *node.all_input_nodes)} & written
        wrote = {storage(argument) for argument in mutated_arguments(node)}
        for each in mine:
            behind += [writer[each]] if each in writer else []
            if each in wrote:
                behind += readers.pop(each, [])
                writer[each] = node
            else:
                readers.setdefault(each, []).append(node)
    return found


def _writes(node: Node) -> bool:
    return bool(mutated_arguments(node))


class _Storages:
    """Classes of nodes that may share a storage (union-find); one node represents each class."""

    def __init__(self) -> None:
        self._above: dict[Node, Node] = {}

    def __call__(self, node: Node) -> Node:
        """Return the representative of a node's class."""
        while (above := self._above.get(node, node)) is not node:
            self._above[node] = self._above.get(above, above)  # halve the way
            node = above
        return node

    def join(self, node: Node, other: Node) -> None:
        self._above[self(node)] = self(other)


def _storages(nodes: Sequence[Node]) -> _Storages:
    storages, outside = _Storages(), None
    for node in nodes:
        if node.op in ("placeholder", "get_attr"):
            outside = outside or node
            storages.join(node, outside)
        elif node.op != "output" and _may_share(node):
            for operand in node.all_input_nodes:
                storages.join(node, operand)
    return storages


def _may_share(node: Node) -> bool:
    """Return whether a result may share memory with an operand; unknown callees may."""
    declared = operators.declared_by(node.target) if node.op == "call_function" else None
    return declared is None or declared.writes or is_view(node)
