"""Compute a tensor right before it is first used, so that it need not be kept until then.

Rule: `a = f(x); ...; b = g(a)` -> `...; a = f(x); b = g(a)`. Only the order changes: exact.
Preconditions: `f` is an operator of torch without effects or random numbers, with one tensor for
its result. No node in between writes to an operand, sets a mode or runs another graph; and operands
that would have died before have no more bytes than `a`, and than `b`: so the peak never grows.
Inputs of a forward graph are alive anyhow, and so are inputs of the program in backward.

Source: `reorder_for_locality` in `torch/_inductor/fx_passes/post_grad.py` moves nodes even if
operands then live longer than the result would have; and not in graphs that write.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ctk.compiler.fx.effects import is_calm
from ctk.compiler.fx.order import orderings
from ctk.compiler.fx.properties import is_mutating, is_pure, is_view
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.partition.costs import nbytes
from ctk.compiler.partition.roles import is_tangent
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter


class OrderForLocality(Pass):
    """Compute a tensor right before it is first used."""

    name = "order_for_locality"

    def run(self, rewriter: Rewriter) -> None:
        moving = _Moving(rewriter.graph)
        front = rewriter.graph.output_node()
        while front.op != "root":
            front = _settle(rewriter, moving, front).prev


def _settle(rewriter: Rewriter, moving: "_Moving", node: Node) -> Node:
    """Settle a node and, in front of it, the nodes that it needs first; return the first of them.

    Settled nodes are at the end of the graph, in their last order. Moving a node to their front
    shortens the life of the node, and may lengthen the life of its operands.
    """
    front, queue, refused = node, deque([node]), dict[Node, dict[Node, None]]()
    moving.settle(node)
    while queue:
        user = queue.popleft()
        for operand in moving.operands(user):
            if front.prev is not operand:
                if not moving.saves(operand, front):
                    for base in moving.kept_by(operand):
                        refused.setdefault(base, {})[user] = None  # each user once
                    continue
                if not _move(rewriter, operand, front):
                    moving.vetoed.add(operand)
                    continue
            front = operand
            queue.append(operand)
            for base in moving.settle(operand):
                queue.extend(refused.pop(base, ()))
    return front


def _move(rewriter: Rewriter, node: Node, front: Node) -> bool:
    rule = f"{node.target} -> in front of its first user"
    return rewriter.rewrite(rule, [node, front], lambda graph: front.prepend(node))


class _Moving:
    """State while nodes are settled from the end of a graph to its start.

    Attributes:
        places: The original position of each node.
        bases: The node whose memory a node's value is.
        followers: Nodes that must stay behind a node, besides its users.
        alive: The bases that are alive at the front of the settled nodes, or always.
        settled: The nodes at the end.
        vetoed: Nodes that must not move, and are not asked about again.
    """

    def __init__(self, graph: Graph) -> None:
        nodes = list(graph.nodes)
        self.places = {node: place for place, node in enumerate(nodes)}
        self.bases = _bases(nodes)
        self.followers = _followers(nodes)
        self.alive = _inputs_of_caller(nodes)
        self.settled: set[Node] = set()
        self.vetoed: set[Node] = set()

    def settle(self, node: Node) -> set[Node]:
        """Settle a node; return the bases that are alive for it, and were not before."""
        self.settled.add(node)
        new = self.kept_by(node)
        self.alive |= new
        return new

    def kept_by(self, node: Node) -> set[Node]:
        """Return the bases that would be alive for a node alone."""
        return {self.bases[operand] for operand in node.all_input_nodes} - self.alive

    def operands(self, user: Node) -> list[Node]:
        """Return the operands of a settled node that may follow all that is not, the last first."""
        found = [operand for operand in user.all_input_nodes if self._may_move(operand)]
        return sorted(found, key=self.places.__getitem__, reverse=True)

    def _may_move(self, node: Node) -> bool:
        if node in self.settled or node in self.vetoed or not self.settled.issuperset(node.users):
            return False
        is_free = self.settled.issuperset(self.followers.get(node, ()))
        return is_free and _is_movable(node)

    def saves(self, node: Node, front: Node) -> bool:
        """Return whether no more is alive at any time if a node moves in front of another."""
        limit = min(self._new_nbytes(node), self._new_nbytes(front))
        return sum(map(nbytes, self.kept_by(node))) <= limit

    def _new_nbytes(self, node: Node) -> int:
        is_new = node.op == "call_function" and self.bases[node] is node
        return nbytes(node) if is_new else 0


def _bases(nodes: Sequence[Node]) -> dict[Node, Node]:
    bases: dict[Node, Node] = {}
    for node in nodes:
        is_alias = node.op == "call_function" and (is_view(node) or is_mutating(node))
        source = next(iter(node.all_input_nodes), None) if is_alias else None
        bases[node] = bases[source] if source is not None else node
    return bases


def _followers(nodes: Sequence[Node]) -> Mapping[Node, Sequence[Node]]:
    followers: dict[Node, list[Node]] = {}
    if all(map(is_calm, nodes)):
        return followers
    for node, behind in orderings(nodes).items():
        for each in behind:
            followers.setdefault(each, []).append(node)
    return followers


def _inputs_of_caller(nodes: Sequence[Node]) -> set[Node]:
    """Return the inputs that the caller holds while the graph runs; saved values are not held."""
    is_backward = any(map(is_tangent, nodes))
    inputs = (node for node in nodes if node.op in ("placeholder", "get_attr"))
    return {n for n in inputs if not is_backward or n.op == "get_attr" or "primals" in n.name}


def _is_movable(node: Node) -> bool:
    if node.op != "call_function" or tensor_of(node) is None or "unbacked_bindings" in node.meta:
        return False
    return getattr(node.target, "namespace", None) in ("aten", "prims") and is_pure(node)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y = torch.ones(4, 3), torch.ones(3)
    return [
        (_constant_first, (x, y)),
        (_views_first, (x, y)),
        (_writes_between, (x, y)),
    ]


def _constant_first(x: Tensor, y: Tensor) -> Tensor:
    ones, later = torch.ones_like(x), y.exp()
    return (x.sin().cos() * later).tanh() - ones


def _views_first(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    turned, row = x.t(), y.expand(4, 3)
    return x.sin() + row, (x * 2).neg().t() - turned


def _writes_between(x: Tensor, y: Tensor) -> Tensor:
    old, other = x.neg(), y.neg()
    x.add_(1)
    return x.sin().tanh() * old + other


PASS = OrderForLocality()
