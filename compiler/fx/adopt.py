"""Turn a live graph into a saved one in place: undo a pass, or accept its returned graph.

References to the live module stay valid. The saved graph stays unchanged: its tensors are shared,
its nodes and sub-graphs copied.
"""

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.copy import copy_graph, copy_graph_module
from ctk.compiler.fx.order import reorder
from ctk.compiler.fx.walk import attributes


def adopt(live: GraphModule, saved: GraphModule, *, renew: bool = False) -> None:
    """Copy graph, sub-graphs and attributes of `saved` into `live`.

    Args:
        live: Changed. A common node (same name, same op) stays the same object and keeps its
            `meta`; if its definition differs, the saved `meta` wins.
        renew: Copy all nodes instead, for a new trace, in which equal names mean nothing.
    """
    if renew:
        live.graph = copy_graph(saved.graph)
    else:
        _adopt_nodes(live.graph, saved.graph)
    present = attributes(live)
    for target, value in attributes(saved).items():
        mine = present[target]
        if mine is value or value is None:
            continue
        if isinstance(mine, GraphModule) and isinstance(value, GraphModule):
            adopt(mine, value, renew=renew)
        else:
            copied = copy_graph_module(value) if isinstance(value, GraphModule) else value
            assign(live, target, copied)
    live.recompile()


def assign(gm: GraphModule, target: str, value: object) -> None:
    """Make `value` the attribute at a dotted target; tensors become buffers or parameters."""
    *path, name = target.split(".")
    owner: torch.nn.Module = gm
    for part in path:
        if not isinstance(getattr(owner, part, None), torch.nn.Module):
            owner.add_module(part, torch.nn.Module())
        owner = getattr(owner, part)
    if hasattr(owner, name):
        delattr(owner, name)
    if isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter):
        owner.register_buffer(name, value)
    else:
        setattr(owner, name, value)


def _adopt_nodes(graph: Graph, saved: Graph) -> None:
    present = {node.name: node for node in graph.nodes}
    made = {old: _node(graph, present.get(old.name), old) for old in saved.nodes}
    for old, node in made.items():
        args, kwargs = map_arg(old.args, made.__getitem__), map_arg(old.kwargs, made.__getitem__)
        if (node.target, node.args, node.kwargs) != (old.target, args, kwargs):
            node.target, node.args, node.kwargs = old.target, args, kwargs
            node.meta.update(old.meta)
    _erase(graph, set(made.values()))
    reorder(graph, list(made.values()))


def _node(graph: Graph, node: Node | None, old: Node) -> Node:
    """Return the live node that becomes `old`, still with its own target and operands."""
    if node is None or node.op != old.op:
        node = graph.create_node(old.op, old.target, name=old.name, type_expr=old.type)
        node.meta = dict(old.meta)
        node.name = old.name  # FX never reuses the name of an erased node
    return node


def _erase(graph: Graph, kept: set[Node]) -> None:
    gone = [node for node in graph.nodes if node not in kept]
    for node in gone:
        node.args, node.kwargs = (), {}
    for node in gone:
        graph.erase_node(node)
