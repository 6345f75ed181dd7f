"""Plain functions of a graph that are wrong in one corner."""

import torch
from torch.fx import Graph, GraphModule

aten = torch.ops.aten


def drop_relu_of_abs(graph: Graph) -> None:
    """Wrong: `abs` of the smallest int is negative; and the value may leave the graph twice."""
    for node in graph.find_nodes(op="call_function", target=aten.relu.default):
        if node.args[0].target is aten.abs.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def swap_minimum(gm: GraphModule) -> None:
    """Wrong in the sign of a zero: the order of 0.0 and -0.0 counts."""
    for node in gm.graph.find_nodes(op="call_function", target=aten.minimum.default):
        a, b = (each.meta["val"] for each in node.args)
        if (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()):
            node.args = node.args[::-1]


def help_nobody(graph: Graph, count: int) -> int:
    """No pass: it takes more than a graph."""
    return count
