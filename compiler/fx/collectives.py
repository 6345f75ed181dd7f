"""Functional collectives: a node starts one, and another node waits for its result.

Between the two the library reads the memory of the operand, although no node does.
"""

from torch.fx import Node

ALL_GATHER = "_c10d_functional.all_gather_into_tensor.default"
ALL_REDUCE = "_c10d_functional.all_reduce.default"
REDUCE_SCATTER = "_c10d_functional.reduce_scatter_tensor.default"
_NAMESPACE = "_c10d_functional."
_WAIT = "_c10d_functional.wait_tensor.default"


def is_start(node: Node) -> bool:
    """Return whether a node starts a collective."""
    return str(node.target).startswith(_NAMESPACE) and not is_wait(node)


def waits_of(node: Node) -> list[Node]:
    """Return the nodes that wait for the result of a node."""
    return [user for user in node.users if is_wait(user)]


def is_wait(node: Node) -> bool:
    """Return whether a node waits for a collective: its first argument."""
    return str(node.target) == _WAIT
