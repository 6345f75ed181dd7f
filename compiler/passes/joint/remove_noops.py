"""Remove operations that return their operand unchanged.

Rules, where the operand has the result's type and strides:
    1. views: `view|reshape|expand|permute|slice|squeeze|alias|detach(x) -> x`;
    2. copies: `clone|_to_copy|mul 1|div 1|sub 0|pow 1(x) -> x`.
Preconditions: a copy is removed only if that is unobservable: it does not leave the graph, and
nothing writes to the operand. Arithmetic of complex numbers stays: `inf * 1` has a NaN
there, and zeros change their signs. `detach` and `alias` stay if they or views of them leave the
graph: autograd distinguishes results by object, and of `z.detach(), z[0]` only one has a gradient.
`x + 0` and `x - -0.0` stay: they turn -0.0 into 0.0. Exact.

Source: Inductor's `remove_noop_ops`; this pass keeps strides, aliases and signs of zero.
"""

import math
from collections.abc import Mapping

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.types import same_layout, tensor_of
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten
_VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.expand.default,
        aten.permute.default,
        aten.slice.Tensor,
        aten.squeeze.dims,
        aten.squeeze.dim,
        aten.squeeze.default,
        aten.alias.default,
        aten.detach.default,
    }
)
_BARRIERS = (aten.alias.default, aten.detach.default)
_COPIES = frozenset({aten.clone.default, aten._to_copy.default})
_NEUTRAL: Mapping[object, int] = {
    aten.mul.Tensor: 1,
    aten.mul.Scalar: 1,
    aten.div.Tensor: 1,
    aten.div.Scalar: 1,
    aten.sub.Tensor: 0,
    aten.sub.Scalar: 0,
    aten.pow.Tensor_Scalar: 1,
}


class RemoveNoops(Pass):
    """Remove operations that return their operand unchanged."""

    name = "remove_noops"

    def run(self, rewriter: Rewriter) -> None:
        mutated = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            source = node.args[0] if node.op == "call_function" and node.args else None
            if not isinstance(source, Node) or not _is_noop(node) or not same_layout(node, source):
                continue
            if node.target not in _VIEWS and (escapes(node) or base_of(source) in mutated):
                continue
            if node.target in _BARRIERS and escapes(node):
                continue
            rewriter.replace(node, source, rule=f"{node.target}(x) -> x")


def _is_noop(node: Node) -> bool:
    """Type and strides decide for views and copies, unless equal sizes could hide a permutation."""
    if node.target is aten.permute.default:
        order = node.args[1]
        return isinstance(order, (list, tuple)) and list(order) == list(range(len(order)))
    if node.target is aten.slice.Tensor:
        return _is_whole(node)
    if node.target in _VIEWS or node.target in _COPIES:
        return True
    if node.target not in _NEUTRAL or node.kwargs or len(node.args) != 2:
        return False
    operand, result = node.args[1], tensor_of(node)
    if result is None or result.is_complex():
        return False
    if not isinstance(operand, (int, float)) or isinstance(operand, bool):
        return False
    return operand == _NEUTRAL[node.target] and math.copysign(1, operand) > 0


def _is_whole(node: Node) -> bool:
    """Return whether a slice of equal size is the whole: for any bounds, unless it steps."""
    step = node.args[4] if len(node.args) > 4 else 1
    return isinstance(step, int) and step == 1


PASS = RemoveNoops()
