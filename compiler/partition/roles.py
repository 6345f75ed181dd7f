"""The role of one node of a joint graph: its kind of input, its side, whether it can repeat.

AOTAutograd names inputs (`primals_1`, `tangents_1`, `fwd_seed_0`) and tags nodes
(`meta["partitioner_tag"]`); checkpointing adds a tag of its own (`meta["recompute"]`).

Source: torch/_functorch/partitioners.py and _aot_autograd/utils.py read the same names and tags.
"""

import operator

import torch
from torch.fx import GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from ctk.compiler.fx.properties import is_effect, is_random
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.torch_compat.fx import operators

_FORWARD_SEEDS = ("fwd_seed", "fwd_base_offset")
_BACKWARD_SEEDS = ("bwd_seed", "bwd_base_offset")
_TAGS = ("partitioner_tag", "recompute", "ac_graph_id")
_RECOMPUTE = (CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE)


def is_tangent(node: Node) -> bool:
    """Return whether a node is an input of backward: the gradient of an output."""
    return node.op == "placeholder" and "tangents" in str(node.target)


def is_forward_seed(node: Node) -> bool:
    """Return whether a node is the forward graph's seed or offset of functional random numbers."""
    return node.op == "placeholder" and any(part in str(node.target) for part in _FORWARD_SEEDS)


def is_backward_seed(node: Node) -> bool:
    """Return whether a node is the backward graph's seed or offset."""
    return node.op == "placeholder" and any(part in str(node.target) for part in _BACKWARD_SEEDS)


def is_primal(node: Node) -> bool:
    """Return whether a node is an input of the program."""
    others = (is_tangent, is_forward_seed, is_backward_seed)
    return node.op == "placeholder" and not any(check(node) for check in others)


def tag_of(node: Node) -> object:
    """Return the side on which AOTAutograd traced or wants a node; None without a tag."""
    return node.meta.get("partitioner_tag")


def inherit_tags(node: Node, replaced: Node) -> None:
    """Copy the tags of side and checkpointing to a new node from the node that it replaces."""
    node.meta.update({key: replaced.meta[key] for key in _TAGS if key in replaced.meta})


def is_unrepeatable(node: Node) -> bool:
    """Return whether a node must not run in both graphs, not even from a saved state.

    1. It has an effect. 2. It is a higher-order operator with other functions than sub-graphs, or
    with a sub-graph that draws or has an effect. 3. It makes a data-dependent size, which has one
    name in both graphs.
    """
    if node.op != "call_function":
        return False
    return is_effect(node) or "unbacked_bindings" in node.meta or _calls_unrepeatable(node)


def _calls_unrepeatable(node: Node) -> bool:
    if operators.kind_of(node.target) != "higher_order":
        return False
    called = [arg for arg in node.all_input_nodes if arg.op == "get_attr"]
    owner = node.graph.owning_module
    graphs = [fetch(owner, arg.target) for arg in called]
    inside = [graph for graph in graphs if isinstance(graph, GraphModule)]
    return not inside or any(map(_is_unrepeatable_graph, inside))


def _is_unrepeatable_graph(graph: GraphModule) -> bool:
    return any(is_random(node) or is_unrepeatable(node) for node in graph.graph.nodes)


def must_be_in_backward(node: Node) -> bool:
    """Return whether a node may run in backward only."""
    if tag_of(node) == "must_be_in_backward":
        return True
    return tag_of(node) == "is_backward" and (is_effect(node) or is_random(node))


def must_recompute(node: Node) -> bool:
    """Return whether checkpointing wants a node recomputed in backward."""
    return node.meta.get("recompute") in _RECOMPUTE


def is_getitem(node: Node) -> bool:
    """Return whether a node takes one of several results."""
    return node.target is operator.getitem


def is_tensor(node: Node) -> bool:
    """Return whether a node's value is one tensor."""
    return isinstance(value_of(node), torch.Tensor)
