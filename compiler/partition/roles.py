"""What one node of a joint graph is: whose input, which side it must be on, whether it repeats.

AOTAutograd names inputs (`primals_1`, `tangents_1`, `fwd_seed_0`) and tags nodes
(`meta["partitioner_tag"]`); checkpointing tags them, too (`meta["recompute"]`).

Source: torch/_functorch/partitioners.py and _aot_autograd/utils.py read the same names and tags.
"""

import operator

import torch
from torch.fx import Node
from torch.utils.checkpoint import CheckpointPolicy

from ctk.compiler.fx.types import value_of
from ctk.compiler.torch_compat.partition import is_higher_order, is_mutating

_FORWARD_SEEDS = ("fwd_seed", "fwd_base_offset")
_BACKWARD_SEEDS = ("bwd_seed", "bwd_base_offset")
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
    """Return on which side AOTAutograd has traced a node, or wants it; None if it does not say."""
    return node.meta.get("partitioner_tag")


def is_effect(node: Node) -> bool:
    """Return whether a node must run though nobody uses its result."""
    if node.op != "call_function":
        return False
    return is_mutating(node) or node.is_impure(impure_random=False)


def is_random(node: Node) -> bool:
    """Return whether a node draws random numbers, so that a second run gives others."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def is_unrepeatable(node: Node) -> bool:
    """Return whether a node must not run in both graphs.

    1. It draws random numbers. 2. It has an effect. 3. It calls sub-graphs, in which either may
    be. 4. It makes a size that only its data tells, which has one name in both graphs.
    """
    if node.op != "call_function":
        return False
    return (
        is_random(node)
        or is_effect(node)
        or is_higher_order(node)
        or "unbacked_bindings" in node.meta
    )


def must_be_in_backward(node: Node) -> bool:
    """Return whether a node may run in backward only."""
    if tag_of(node) == "must_be_in_backward":
        return True
    return tag_of(node) == "is_backward" and (is_effect(node) or is_random(node))


def must_recompute(node: Node) -> bool:
    """Return whether checkpointing wants a node to be computed again in backward."""
    return node.meta.get("recompute") in _RECOMPUTE


def is_getitem(node: Node) -> bool:
    """Return whether a node takes one of several results."""
    return node.target is operator.getitem


def is_tensor(node: Node) -> bool:
    """Return whether a node's value is one tensor."""
    return isinstance(value_of(node), torch.Tensor)
