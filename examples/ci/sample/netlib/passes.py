"""Passes for compiled programs, as a team writes them; some have bugs."""

import torch
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten


def fold_scale(gm: GraphModule) -> None:
    """Rewrite `x + s * y` to one `add`; BUG: of `s * y + x` it scales the wrong operand."""
    for node in list(gm.graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        for position in (1, 0):
            scaled = node.args[position]
            if _is_scaling(scaled):
                _fuse(gm, node, scaled)
                break


def _is_scaling(node: object) -> bool:
    is_product = isinstance(node, Node) and node.target is aten.mul.Tensor
    return is_product and isinstance(node.args[1], float) and len(node.users) == 1


def _fuse(gm: GraphModule, node: Node, scaled: Node) -> None:
    value, scale = scaled.args
    left, right = (value if argument is scaled else argument for argument in node.args)
    with gm.graph.inserting_before(node):
        fused = gm.graph.call_function(aten.add.Tensor, (left, right), {"alpha": scale})
    node.replace_all_uses_with(fused)
    gm.graph.erase_node(node)
    gm.graph.erase_node(scaled)


def cancel_division(gm: GraphModule) -> None:
    """Rewrite `x / x` to ones; BUG: `0 / 0` is NaN."""
    for node in list(gm.graph.nodes):
        if node.target is aten.div.Tensor and node.args[0] is node.args[1]:
            with gm.graph.inserting_before(node):
                ones = gm.graph.call_function(aten.ones_like.default, (node.args[0],))
            node.replace_all_uses_with(ones)
            gm.graph.erase_node(node)


def shorten_sums(graph: Graph) -> None:
    """For Inductor: rewrite `add(x, y, alpha=s)` to `add(x, y)`; BUG: whatever `s` is."""
    for node in graph.nodes:
        if node.target is aten.add.Tensor and "alpha" in node.kwargs:
            node.kwargs = {}
