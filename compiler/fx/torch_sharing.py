"""Whether what a call of torch returns may be seen from elsewhere: returned, written to, kept.

For captured graphs, where a result may be a view of what it is made from. What a call does that
`torch_calls` does not know is not known either: its result may be a view, and is followed.
"""

from collections.abc import Callable

import torch
from torch.fx import Node

from ctk.compiler.fx.effects import is_calm, mutated_arguments
from ctk.compiler.fx.torch_calls import call_of

VIEWS: frozenset[Callable[..., object]] = frozenset(
    {
        torch.permute,
        torch.transpose,
        torch.t,
        torch.reshape,
        torch.flatten,
        torch.squeeze,
        torch.unsqueeze,
        torch.unbind,
        torch.chunk,
        torch.split,
    }
)
"""Functions of `torch_calls` whose result may share memory with an operand; of the others none."""


def is_new(node: Node) -> bool:
    """Return whether a node's value is known to be new memory, which shares with nothing."""
    call = call_of(node)
    return call is not None and call.function not in VIEWS


def leaves(node: Node) -> bool:
    """Return whether somebody may see that a node's value shares memory, or that it does not.

    It, or what may be a view of it, is returned, written to, or handed to what may do either.
    """
    queue, seen = [node], {node}
    while queue:
        for user in queue.pop().users:
            if user.op == "output" or mutated_arguments(user) or not is_calm(user):
                return True
            if user not in seen and not is_new(user):
                seen.add(user)
                queue.append(user)
    return False
