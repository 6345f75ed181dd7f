"""Remove dropout that does nothing.

Rules: `dropout(x, p, training=False) -> x`, `dropout(x, 0.0) -> x`. Preconditions: not in place.
Exact: eager returns its input then.

Source: Inductor's `remove_identity` does it for modules; this one for calls.
"""

import torch
from torch.fx import Node

from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter

_DROPOUTS = (torch.nn.functional.dropout, torch.dropout)


class RemoveInferenceDropout(Pass):
    """Remove dropout that does nothing."""

    name = "remove_inference_dropout"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if node.op == "call_function" and node.target in _DROPOUTS and _is_idle(node):
                source = node.args[0] if node.args else None
                if isinstance(source, Node):
                    rewriter.replace(node, source, rule="dropout(x) -> x")


def _is_idle(node: Node) -> bool:
    names = ("input", "p", "training", "inplace")
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    probability = given.get("p", 0.5)
    is_zero = isinstance(probability, (int, float)) and probability == 0.0
    is_idle = is_zero or given.get("training", True) is False
    return is_idle and given.get("inplace", False) is False


PASS = RemoveInferenceDropout()
