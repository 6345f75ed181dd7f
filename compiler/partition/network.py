"""The flow network of a joint graph, whose minimum cut says what to save.

Each node n is two vertices, n.in and n.out. What is on the sink's side is computed in backward.
    n.in -> n.out, its bytes       cut: n is saved
    n.out -> user.in, infinite     who computes `user` in backward must have n there
    source -> n.in, infinite       n must not be computed again
    n.in -> sink, infinite         n must be computed in backward
    n.out -> sink, infinite        n must be there in backward

Source: the network of torch/_functorch/partitioners.py, `solve_min_cut`. Differs: capacities are
bytes and nothing else, so that no partition under the same bans saves less; of equal cuts the one
nearest to backward is taken, where torch weighs nodes by their distance from it. A tensor that
forward overwrites is not saved as long as there is another way.
"""

from collections.abc import Collection

from torch.fx import Node

from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.costs import nbytes
from ctk.compiler.partition.min_cut import Edge, Unbounded, minimum_cut
from ctk.compiler.partition.roles import is_effect, is_primal, is_tensor
from ctk.compiler.torch_compat.partition import is_symbolic


class CannotPartition(Exception):
    """A value must be there in backward that can neither be saved nor computed again."""


def cut(info: NodeInfo, banned: Collection[Node]) -> list[Node]:
    """Return the nodes to save, in order, if these must not be computed again.

    Raises:
        CannotPartition: Names the nodes between which nothing can be saved.
    """
    try:
        return _cut(info, banned, overwritten(info))
    except Unbounded:
        return _cut(info, banned, frozenset())


def _cut(info: NodeInfo, banned: Collection[Node], unsaved: Collection[Node]) -> list[Node]:
    sink = 2 * len(info.nodes) + 1
    try:
        edges = minimum_cut(
            _edges(info, banned, unsaved), size=sink + 1, source=sink - 1, sink=sink
        )
    except Unbounded as error:
        if unsaved:
            raise
        vertices = error.path[1:-1]
        names = dict.fromkeys(info.nodes[vertex // 2].name for vertex in vertices)
        raise CannotPartition(
            "backward needs a value that can neither be saved nor computed again: "
            + " -> ".join(names)
        ) from error
    return [info.nodes[place] for place in sorted(tail // 2 for tail, _ in edges)]


def _edges(
    info: NodeInfo, banned: Collection[Node], unsaved: Collection[Node]
) -> dict[Edge, int | None]:
    source, sink = 2 * len(info.nodes), 2 * len(info.nodes) + 1
    demanded = set(info.demanded)
    edges: dict[Edge, int | None] = {}
    for place, node in enumerate(info.nodes):
        if node in info.backward or node in info.recomputed:
            edges[2 * place, sink] = None
            if node in info.backward:
                continue
        if node in banned:
            edges[source, 2 * place] = None
        if node in demanded:
            edges[2 * place + 1, sink] = None
        edges[2 * place, 2 * place + 1] = _capacity(node, info, unsaved)
        for user in node.users:
            if user in info.order:
                edges[2 * place + 1, 2 * info.order[user]] = None
    return edges


def _capacity(node: Node, info: NodeInfo, unsaved: Collection[Node]) -> int | None:
    """Return what it costs to save a node; None if it cannot be saved."""
    if node in unsaved or not (is_tensor(node) or is_symbolic(node)):
        return None
    return saved_nbytes(node, info)


def saved_nbytes(node: Node, info: NodeInfo) -> int:
    """Return the bytes that saving a node takes; nothing for what is there anyway."""
    return 0 if node in info.static else nbytes(node)


def overwritten(info: NodeInfo) -> frozenset[Node]:
    """Return inputs that forward writes to: backward would see the new value, and autograd raises.

    A gradient of the old value must be made from what was computed before.
    """
    effects = [node for node in info.nodes if node not in info.backward and is_effect(node)]
    written = {arg for node in effects for arg in node.args[:1] if isinstance(arg, Node)}
    return frozenset(node for node in written if is_primal(node))
