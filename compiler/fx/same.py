"""Compare two graphs of one process, and their sub-graphs: the same names, definitions and order.

`canonical.py` compares programs, `diff.py` lists differences.
"""

from torch.fx import GraphModule

from ctk.compiler.fx.walk import NO_SWAPS, Swaps, children, input_names

GraphState = tuple[object, ...]
"""A value that is equal for equal graphs. It holds no node, so it survives changes of the graph."""


def state_of(gm: GraphModule, swaps: Swaps = NO_SWAPS) -> GraphState:
    """Return the state of a graph as it is now; `swaps` as in `walk.children`."""
    nested = tuple((name, state_of(child, swaps)) for name, child in children(gm, swaps).items())
    return (definitions(gm), nested)


def definitions(gm: GraphModule) -> GraphState:
    """Return the definition of each node of a graph, in order, without sub-graphs."""
    return tuple((n.op, n.name, n.target, str(n.args), str(n.kwargs)) for n in gm.graph.nodes)


def same_graph(a: GraphModule, b: GraphModule) -> bool:
    """Return whether two graphs and their sub-graphs list the same definitions in one order."""
    return state_of(a) == state_of(b)


def same_inputs(a: GraphModule, b: GraphModule) -> bool:
    """Return whether two graphs take the same inputs (freezing turns some into constants)."""
    return input_names(a) == input_names(b)
