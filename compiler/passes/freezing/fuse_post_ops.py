"""Fuse operators into oneDNN's products and convolutions before them.

Rules, `y` being a product or convolution of `prepack_linear` or `prepack_convolution`:
    1. sigmoid|tanh|silu|gelu|leaky_relu(y) -> y with that as post-op
    2. y + z, z + y, y - z, y * z -> y with `add`, `sub` or `mul` of `z` as post-op
    3. relu|hardtanh|hardsigmoid|hardswish(y) -> y with that as post-op, if `exact_nan` is False:
       oneDNN turns a NaN into a number there (hardswish: an intermediate infinity)
Preconditions: `y` has no other user and no post-op yet; float32; `z` has the type and strides of
`y` and of the result, and does not depend on `y`; nothing is written between; `leaky_relu` and
`hardtanh` not if TorchScript compiles the graph, which cannot take their numbers.
Reassociates: oneDNN approximates the functions as closely as torch's kernels do, but differently.

Source: `torch/_inductor/fx_passes/mkldnn_fusion.py` (`_register_unary_fusion`,
`_register_binary_fusion`) fuses `relu` in any case, and so hides a NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_written_between
from ctk.compiler.fx.types import same_layout, tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_POST_OP = 3
"""How many arguments of a layer say its post-op: the last ones."""

_PostOp = tuple[str, list[float], str]
_Call = tuple[object, tuple[object, ...]]
_SIMPLE: Mapping[object, str] = {
    aten.sigmoid.default: "sigmoid",
    aten.tanh.default: "tanh",
    aten.silu.default: "swish",
}
_LOSES_NAN: Mapping[object, str] = {
    aten.relu.default: "relu",
    aten.hardsigmoid.default: "hardsigmoid",
    aten.hardswish.default: "hardswish",
}
_BINARY: Mapping[object, str] = {
    aten.add.Tensor: "add",
    aten.sub.Tensor: "sub",
    aten.mul.Tensor: "mul",
}


@dataclass(frozen=True, slots=True)
class FusePostOps(Pass):
    """Fuse operators into oneDNN's products and convolutions before them.

    Attributes:
        exact_nan: Leave operators alone for which oneDNN makes a number of a NaN.
    """

    name = "fuse_post_ops"
    numerics = "reassociates"
    exact_nan: bool = True

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if (found := self._unary(node, rewriter.config.codegen)) is not None:
                layer, post_op = found
                operands = (*layer.args[:-_POST_OP], *post_op)
                _fuse(rewriter, node, layer, (layer.target, operands), "layer")
            elif (pair := _binary(node)) is not None:
                _fuse(rewriter, node, pair[0], _with_binary(node, *pair), "layer, z")

    def _unary(self, node: Node, codegen: str) -> tuple[Node, _PostOp] | None:
        layer = node.args[0] if node.args else None
        post_op = _post_op(node)
        if post_op is None and not self.exact_nan:
            post_op = _post_op_without_nan(node)
        if post_op is None or (post_op[1] and codegen == "torchscript"):
            return None
        if not isinstance(layer, Node) or not _is_free(layer, node):
            return None
        return layer, post_op


def _post_op(node: Node) -> _PostOp | None:
    """Return how oneDNN calls an operator, its numbers, and the algorithm."""
    if node.target in _SIMPLE:
        return _SIMPLE[node.target], [], ""
    if node.target is aten.gelu.default and len(node.args) == 1:
        algorithm = node.kwargs.get("approximate", "none")
        return ("gelu", [], algorithm) if isinstance(algorithm, str) else None
    slope = node.args[1] if len(node.args) > 1 else 0.01
    if node.target is aten.leaky_relu.default and isinstance(slope, (int, float)) and slope:
        return "leaky_relu", [float(slope)], ""
    return None


def _post_op_without_nan(node: Node) -> _PostOp | None:
    if node.target in _LOSES_NAN:
        return _LOSES_NAN[node.target], [], ""
    if node.target is aten.hardtanh.default and not node.kwargs:
        low, high = (*node.args[1:], -1.0, 1.0)[:2] if len(node.args) != 2 else (None, None)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high:
            return "hardtanh", [float(low), float(high)], ""
    return None


def _is_free(layer: Node, node: Node) -> bool:
    """Return whether a node is a layer without post-op that only another node uses."""
    if layer.target not in (onednn.linear(), onednn.convolution()) or layer.args[-3] != "none":
        return False
    tensor = tensor_of(layer)
    if tensor is None or tensor.dtype != torch.float32 or list(layer.users) != [node]:
        return False
    return same_layout(layer, node) and not is_written_between(layer, node)


def _binary(node: Node) -> tuple[Node, Node] | None:
    """Rule 2: return the layer and the other operand."""
    if node.target not in _BINARY or node.kwargs or len(node.args) != 2:
        return None
    first, second = node.args
    orders = (
        [(first, second)] if node.target is aten.sub.Tensor else [(first, second), node.args[::-1]]
    )
    for layer, other in orders:
        if not isinstance(layer, Node) or not isinstance(other, Node) or layer is other:
            continue
        if _is_free(layer, node) and same_layout(other, node):
            return layer, other
    return None


def _with_binary(node: Node, layer: Node, other: Node) -> _Call:
    """Return the call of a layer with another operand as post-op."""
    x, *rest = layer.args[:-_POST_OP]
    attr = _BINARY[node.target]
    if layer.target is onednn.convolution():
        return onednn.convolution_binary(), (x, other, *rest, attr, 1.0, None, [], None)
    return onednn.linear_binary(), (x, other, *rest, attr)


def _fuse(rewriter: Rewriter, node: Node, layer: Node, call: _Call, read: str) -> None:
    def make() -> Node:
        fused = rewriter.insert(*call, before=node)
        fused.meta.setdefault("val", node.meta.get("val"))  # binary ones have no fake kernel
        return fused

    rule = f"{node.target}({read}) -> layer"
    rewriter.replace_by(rule, [node, layer], make, erase=[layer])


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule that is on."""
    linear, x, w = onednn.linear(), torch.ones(2, 3), torch.nn.Parameter(torch.ones(4, 3))
    return [
        (lambda x, w: torch.sigmoid(linear(x, w, None, "none", [], "")).sin(), (x, w)),
        (lambda x, w, z: (linear(x, w, None, "none", [], "") + z).sin(), (x, w, torch.ones(2, 4))),
    ]


PASS = FusePostOps()
