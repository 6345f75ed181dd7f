"""Inputs that forward overwrites: backward gets a copy made before the write.

    forward: sin = sin(count); add = add(count, 1); copy_(count, add)
    saved for the gradient of sin: `clone(count)`, the first call of forward

Without the copy backward would read the new value. Source: none; torch (2.11, 2.13) saves the
input, and computes the gradient of the new value.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.properties import is_effect
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.roles import is_primal

aten = torch.ops.aten
_COPIES: Sequence[tuple[Callable[..., Tensor], int]] = (
    (aten.clone.default, 1),
    (aten.copy.default, 2),
)
"""Copying operators, and how many times each takes the tensor: for dense tensors, then with
gaps."""


def overwritten_inputs(info: NodeInfo) -> frozenset[Node]:
    """Return the primals that forward writes to."""
    effects = [node for node in info.nodes if node not in info.backward and is_effect(node)]
    written = {arg for node in effects for arg in mutated_arguments(node)}
    return frozenset(node for node in written if is_primal(node))


def copy_before(node: Node) -> Callable[[Graph, Node], Node] | None:
    """Return how to copy an input with its strides; None for overlaps or an unknown type."""
    value = tensor_of(node)
    if value is None:
        return None
    for copy, count in _COPIES:
        if same_sizes(copy(*[value] * count).stride(), value.stride()):
            return partial(_append_copy, copy=copy, count=count)
    return None


def _append_copy(graph: Graph, original: Node, *, copy: Callable[..., Tensor], count: int) -> Node:
    name = f"{original.name}_before"
    return graph.create_node("call_function", copy, (original,) * count, name=name)
