"""The operators that oneDNN computes behind a product or convolution: its post-ops.

Shared by several passes; this module has no pass.
"""

from collections.abc import Mapping

import torch
from torch.fx import Node

aten = torch.ops.aten

PostOp = tuple[str, list[float], str]
"""How oneDNN calls an operator, its numbers, and the algorithm."""

_SIMPLE: Mapping[object, str] = {
    aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh",
    aten.silu.default: "swish",
    aten.hardswish.default: "hardswish",
}
_LOSES_NAN: Mapping[object, str] = {
    aten.relu.default: "relu",
    aten.hardsigmoid.default: "hardsigmoid",
}


def post_op(node: Node, *, exact_nan: bool = True) -> PostOp | None:
    """Return the name of an operator on one tensor in oneDNN, which lacks others (None).

    Args:
        node: Any node.
        exact_nan: Refuse operators for which oneDNN makes a number of a NaN.
    """
    found = _keeps_nan(node)
    return _loses_nan(node) if found is None and not exact_nan else found


def is_post_op(node: Node, *, codegen: str, exact_nan: bool = True) -> bool:
    """Return whether a node is such an operator for a generator: TorchScript takes no numbers."""
    found = post_op(node, exact_nan=exact_nan)
    return found is not None and not (found[1] and codegen == "torchscript")


def _keeps_nan(node: Node) -> PostOp | None:
    if node.target in _SIMPLE:
        return _SIMPLE[node.target], [], ""
    if node.target is aten.gelu.default and len(node.args) == 1:
        algorithm = node.kwargs.get("approximate", "none")
        return ("gelu", [], algorithm) if isinstance(algorithm, str) else None
    slope = node.args[1] if len(node.args) > 1 else 0.01
    if node.target is aten.leaky_relu.default and isinstance(slope, (int, float)) and slope:
        return "leaky_relu", [float(slope)], ""
    return None


def _loses_nan(node: Node) -> PostOp | None:
    if node.target in _LOSES_NAN:
        return _LOSES_NAN[node.target], [], ""
    if node.target is aten.hardtanh.default and not node.kwargs:
        low, high = (*node.args[1:], -1.0, 1.0)[:2] if len(node.args) != 2 else (None, None)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high:
            return "hardtanh", [float(low), float(high)], ""
    return None
