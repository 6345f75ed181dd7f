"""What a node computes, as a key: nodes with equal keys give equal values, if they are pure."""

from collections.abc import Hashable

from torch.fx import Node


def expression_of(node: Node) -> Hashable:
    """Equal keys mean equal values. 1, 1.0 and True are different arguments."""
    return (node.op, str(node.target), _freeze(node.args), _freeze(node.kwargs))


def _freeze(value: object) -> Hashable:
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_freeze, value))
    if isinstance(value, dict):
        return tuple((key, _freeze(item)) for key, item in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", _freeze(value.start), _freeze(value.stop), _freeze(value.step))
    if isinstance(value, Node):
        return value
    return (type(value).__name__, repr(value))
