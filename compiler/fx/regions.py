"""Regions of autocast around the graphs of a module: operators return other dtypes in them.

A sub-graph runs in the regions that are open where its parent calls it:

    enter = _enter_autocast("cpu", bfloat16)
    y = checkpoint(wrap_body_0, x)          the body returns bfloat16, without a region of its own
"""

from torch.fx import GraphModule, Node

from ctk.compiler.fx.walk import ATTRIBUTES, fetch, graphs_by_path
from ctk.compiler.torch_compat.fx.autocast import open_regions


def regions_around(root: GraphModule) -> dict[GraphModule, list[Node]]:
    """Return the nodes that enter the regions around each graph, the outermost first."""
    found: dict[GraphModule, list[Node]] = {root: []}
    for graph in graphs_by_path(root).values():
        for node in graph.graph.nodes:
            child = fetch(graph, node.target) if node.op in ATTRIBUTES else None
            if isinstance(child, GraphModule):
                call = node if node.op == "call_module" else next(iter(node.users), node)
                found.setdefault(child, [*found[graph], *open_regions(call)])
    return found
