"""Equal expressions of a joint graph made one, before it is split.

In a compile the joint stage has done it (`eliminate_common_subexpressions`), a pass that may
be left out. A joint graph that comes from elsewhere would have both results saved.

Source: torch/_functorch/partitioners.py merges, too. Differs: not where a write is between, and not
what checkpointing treats differently.
"""

from collections.abc import Hashable

from torch.fx import GraphModule, Node

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.expressions import expression_of
from ctk.compiler.fx.properties import base_of, escapes, is_mutating, is_pure, mutated_bases

_TAGS = ("recompute", "ac_graph_id")


def merged(joint: GraphModule) -> GraphModule:
    """Return a copy of a joint graph in which equal expressions are computed once."""
    joint = copy_graph_module(joint)
    seen: dict[Hashable, Node] = {}
    written = mutated_bases(joint.graph)
    for node in list(joint.graph.nodes):
        if is_mutating(node):
            seen.clear()
        if node.op not in ("call_function", "get_attr") or not is_pure(node):
            continue
        key = (expression_of(node), *(str(node.meta.get(tag)) for tag in _TAGS))
        earlier = seen.setdefault(key, node)
        if earlier is node or (escapes(earlier) and escapes(node)):
            continue
        if written.isdisjoint((base_of(earlier), base_of(node))):
            node.replace_all_uses_with(earlier)
            joint.graph.erase_node(node)
    return joint
