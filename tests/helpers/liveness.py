"""How much memory is alive at once while a graph runs, by the recorded sizes."""

from torch.fx import GraphModule, Node

from ctk.compiler.fx.properties import base_of, is_mutating
from ctk.compiler.partition.costs import nbytes


def storage_of(node: Node) -> Node:
    """Return the node whose memory a node's value is; a write returns what it has written to."""
    base = base_of(node)
    while base.op == "call_function" and is_mutating(base) and base.all_input_nodes:
        base = base_of(base.all_input_nodes[0])
    return base


def peak_nbytes(gm: GraphModule, *, held: bool = True) -> int:
    """Return the most bytes that are alive at once: each from its node to its last user.

    Args:
        gm: Its nodes have types.
        held: Whether the caller keeps the inputs.
    """
    nodes = list(gm.graph.nodes)
    last = dict[Node, int]()
    for place, node in enumerate(nodes):
        for each in (node, *node.all_input_nodes):
            last[storage_of(each)] = place
    if held:
        last |= {n: len(nodes) for n in nodes if n.op in ("placeholder", "get_attr")}
    alive, peak = set[Node](), 0
    for place, node in enumerate(nodes):
        alive.add(storage_of(node)) if node.op != "output" else None
        peak = max(peak, sum(map(nbytes, alive)))
        alive = {each for each in alive if last[each] > place}
    return peak
