"""Tell whether two graphs are the same: the same names, definitions and order, sub-graphs too.

The one notion of sameness: a graph that is being changed is compared with its own fingerprint of
before. It does not look at values or metadata, and it does not know equal programs that are written
differently (`diff` says what differs).
"""

from torch.fx import GraphModule

from ctk.compiler.fx.walk import NO_SWAPS, Swaps, children, input_names

Fingerprint = tuple[object, ...]
"""A value that is equal for equal graphs. It holds no node, so it stays when the graph changes."""


def fingerprint(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> Fingerprint:
    """Return the fingerprint of a graph as it is now; `swaps` as in `walk.children`."""
    nested = tuple((name, fingerprint(child, swaps)) for name, child in children(gm, swaps).items())
    return (definitions(gm), nested)


def definitions(gm: GraphModule) -> Fingerprint:
    """Return what each node of a graph computes, in order, without its sub-graphs."""
    return tuple((n.op, n.name, n.target, str(n.args), str(n.kwargs)) for n in gm.graph.nodes)


def same_graph(a: GraphModule, b: GraphModule) -> bool:
    """Return whether two graphs (and their sub-graphs) list the same definitions in one order."""
    return fingerprint(a) == fingerprint(b)


def same_inputs(a: GraphModule, b: GraphModule) -> bool:
    """Return whether two graphs take the same inputs (freezing turns some into constants)."""
    return input_names(a) == input_names(b)
