"""The flow network of a joint graph; its minimum cut is the set of values to save.

Each node n is two vertices, n.in and n.out. Nodes on the sink's side are computed in backward.
    n.in -> n.out, its bytes       cut: n is saved
    o.out -> n.in, infinite        computing n in backward needs its operand o there
    source -> n.in, infinite       n must not be recomputed
    source -> n.in, state's bytes  n draws random numbers; cut: the generator's state is saved
    n.in -> sink, infinite         n must be computed in backward
    n.out -> sink, infinite        backward needs the value of n

Source: the network of torch/_functorch/partitioners.py, `solve_min_cut`. Differs: capacities are
bytes only, so that no partition under the same bans saves less; of equal cuts the one nearest to
backward is taken, while torch weighs nodes by their distance from it. Random numbers may be drawn
again. Operands are the operands of the recomputation (`recipes.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass

from torch.fx import Node

from ctk.compiler.fx.properties import is_random, is_symbolic
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.costs import nbytes
from ctk.compiler.partition.min_cut import Edge, Unbounded, minimum_cut
from ctk.compiler.partition.overwritten import copy_before, overwritten_inputs
from ctk.compiler.partition.recipes import state_nbytes
from ctk.compiler.partition.roles import is_tensor


class CannotPartition(Exception):
    """Backward needs a value that can neither be saved nor recomputed."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The values to save, in order, and the bytes of them and of saved generator states."""

    values: list[Node]
    nbytes: int


def cut(info: NodeInfo, banned: Collection[Node]) -> Cut:
    """Return the minimum cut if the banned nodes must not be recomputed.

    Raises:
        CannotPartition: Names the nodes between which nothing can be saved.
    """
    capacities, size = network_of(info, banned)
    source, sink = size - 2, size - 1
    try:
        edges = minimum_cut(capacities, size=size, source=source, sink=sink)
    except Unbounded as error:
        names = dict.fromkeys(info.nodes[vertex // 2].name for vertex in error.path[1:-1])
        raise CannotPartition(
            "backward needs a value that can neither be saved nor computed again: "
            + " -> ".join(names)
        ) from error
    places = sorted(tail // 2 for tail, _ in edges if tail != source)
    return Cut([info.nodes[place] for place in places], sum(capacities[e] or 0 for e in edges))


def network_of(info: NodeInfo, banned: Collection[Node]) -> tuple[dict[Edge, int | None], int]:
    """Return capacities (None: infinite), and the number of vertices: source and sink are last."""
    source, sink = 2 * len(info.nodes), 2 * len(info.nodes) + 1
    demanded = set(info.demanded)
    written = overwritten_inputs(info)
    edges: dict[Edge, int | None] = {}
    for place, node in enumerate(info.nodes):
        for operand in info.operands(node):
            edges[2 * info.order[operand] + 1, 2 * place] = None
        if node in info.backward or node in info.recomputed:
            edges[2 * place, sink] = None
            if node in info.backward:
                continue
        if node in banned:
            edges[source, 2 * place] = None
        elif is_random(node):
            edges[source, 2 * place] = state_nbytes(node)
        if node in demanded:
            edges[2 * place + 1, sink] = None
        edges[2 * place, 2 * place + 1] = _capacity(node, info, written)
    return edges, sink + 1


def _capacity(node: Node, info: NodeInfo, written: Collection[Node]) -> int | None:
    """Return the bytes of saving a node; None if it cannot be saved."""
    if not (is_tensor(node) or is_symbolic(node)):
        return None
    if node in written:  # a copy of it is saved
        return None if copy_before(node) is None else nbytes(node)
    return 0 if node in info.static else nbytes(node)  # parameters stay in memory anyway
