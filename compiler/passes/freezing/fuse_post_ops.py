"""Fuse operators into oneDNN's products and convolutions before them.

Rules, `y` being a product or convolution of `prepack_linear` or `prepack_convolution`:
    1. sigmoid|tanh|silu|hardswish|gelu|leaky_relu(y) -> y with that as post-op
    2. y + z, z + y, y - z, y * z -> y with `add`, `sub` or `mul` of `z` as post-op
    3. relu|hardtanh|hardsigmoid(y) -> y with that as post-op, if `exact_nan` is False: oneDNN makes
       a number of a NaN there; so with 1, if `y` is a transposed convolution, sigmoid and gelu
    4. relu(convolution with `add`, `sub` or `mul`) -> it with both, under the same condition
    5. f(clone(y)) -> clone(y with `f` as post-op), `f` of rules 1 and 3
Preconditions: `y` has no other user and no post-op yet (but 4); `z` does not depend on `y`, and has
the type and strides of `y` and of the result, or behind a convolution one number for each channel
(of each image, or of all); nothing is written between; 2: `y` is not a transposed convolution;
`leaky_relu` and `hardtanh` not if TorchScript compiles the graph, which cannot take their numbers.
Reassociates: oneDNN approximates the functions as closely as torch's kernels do, but differently;
in 16 bits it rounds once, behind the operator; `hardswish` does not overflow in between.

Source: `torch/_inductor/fx_passes/mkldnn_fusion.py` (`_register_unary_fusion`,
`_register_binary_fusion`, `_register_binary_unary_fusion`) fuses `relu` in any case, and so hides a
NaN.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_written_between
from ctk.compiler.fx.types import is_dense, same_layout, same_sizes, tensor_of
from ctk.compiler.passes.freezing.post_ops import PostOp, is_post_op, post_op
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_POST_OP = 3
"""How many arguments of a layer describe its post-op: the last ones."""

_LOST_IN_TRANSPOSED = (("sigmoid", [], ""), ("gelu", [], "none"))
"""Post-ops for which some kernels of transposed convolutions make a number of a NaN."""

_Call = tuple[object, tuple[object, ...]]
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
            if is_post_op(node, codegen=rewriter.config.codegen, exact_nan=self.exact_nan):
                self._fuse_unary(rewriter, node)
            elif (pair := _binary(node)) is not None:
                _fuse(rewriter, node, pair[0], _with_binary(node, *pair), "layer, z")

    def _fuse_unary(self, rewriter: Rewriter, node: Node) -> None:
        layer, copy = node.args[0], None
        if isinstance(layer, Node) and _is_copy(layer, node):
            layer, copy = layer.args[0], layer
        if not isinstance(layer, Node) or not _is_free(layer, copy or node):
            return
        found = post_op(node, exact_nan=self.exact_nan)
        assert found is not None  # is_post_op has looked
        if not self._takes(layer, found):
            return
        call = layer.target, (*layer.args[:-_POST_OP], *found)
        _fuse(rewriter, node, layer, call, "layer" if copy is None else "clone(layer)", copy)

    def _takes(self, layer: Node, found: PostOp) -> bool:
        if layer.target is onednn.convolution_binary():
            return found[0] == "relu"
        is_transposed = layer.target is onednn.transposed_convolution()
        return not (is_transposed and self.exact_nan and found in _LOST_IN_TRANSPOSED)


def _is_copy(copy: Node, node: Node) -> bool:
    """Rule 5: return whether a node is a dense copy that only another node uses."""
    if copy.target is not aten.clone.default or list(copy.users) != [node]:
        return False
    return same_layout(copy, node) and not is_written_between(copy, node)


def _is_free(layer: Node, node: Node) -> bool:
    """Return whether a node is a layer without post-op that only another node uses."""
    if list(layer.users) != [node] or is_written_between(layer, node):
        return False
    if layer.target is onednn.convolution_binary():
        is_free = layer.args[-_POST_OP] is None
    else:
        is_free = layer.target in _layers() and layer.args[-_POST_OP] == "none"
    if layer.target is onednn.linear() and not _has_matrices(layer):
        return False
    return is_free and (node.target is aten.clone.default or same_layout(layer, node))


def _has_matrices(linear: Node) -> bool:
    """Return whether a product has rows and a matrix of weights: oneDNN reads others wrongly."""
    x, weight = map(tensor_of, linear.args[:2])
    return x is not None and weight is not None and x.dim() >= 2 and weight.dim() == 2


def _layers() -> tuple[object, ...]:
    return onednn.linear(), onednn.convolution(), onednn.transposed_convolution()


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
        is_one = layer.target in (onednn.linear(), onednn.convolution())
        fits = same_layout(other, node) or _is_broadcast(other, layer)
        if is_one and fits and _is_free(layer, node):
            return layer, other
    return None


def _is_broadcast(other: Node, layer: Node) -> bool:
    """Return whether a convolution takes another operand with a number for each channel."""
    result, tensor = tensor_of(layer), tensor_of(other)
    if layer.target is not onednn.convolution() or result is None or tensor is None:
        return False
    if tensor.dtype != result.dtype or tensor.dim() != result.dim() or not is_dense(tensor):
        return False
    if any(map(fake.is_symbolic, tensor.shape)):
        return False
    ones = [1] * (result.dim() - 2)
    batch, channels = result.shape[:2]
    return any(
        same_sizes(tensor.shape, [*first, *ones]) for first in ((batch, channels), (1, channels))
    )


def _with_binary(node: Node, layer: Node, other: Node) -> _Call:
    """Return the call of a layer with another operand as post-op."""
    x, *rest = layer.args[:-_POST_OP]
    attr = _BINARY[node.target]
    if layer.target is onednn.convolution():
        return onednn.convolution_binary(), (x, other, *rest, attr, 1.0, None, [], None)
    return onednn.linear_binary(), (x, other, *rest, attr)


def _fuse(
    rewriter: Rewriter,
    node: Node,
    layer: Node,
    call: _Call,
    read: str,
    copy: Node | None = None,
) -> None:
    def make() -> Node:
        fused = rewriter.insert(*call, before=node)
        fused.meta.setdefault("val", layer.meta.get("val"))  # not all have a fake kernel
        if copy is None:
            return fused
        return rewriter.insert(copy.target, (fused,), copy.kwargs, before=node)

    rule = f"{node.target}({read}) -> {read.split(',')[0]}"
    between = [] if copy is None else [copy]
    rewriter.replace_by(rule, [node, layer, *between], make, erase=[*between, layer])


def examples() -> list[Example]:
    """Return programs that the pass changes, one for each rule that is on."""
    linear, x, w = onednn.linear(), torch.ones(2, 3), torch.nn.Parameter(torch.ones(4, 3))
    image = torch.ones(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    kernel = torch.nn.Parameter(torch.ones(4, 3, 1, 1))
    settings = ([0, 0], [1, 1], [1, 1], 1, "none", [], "")

    def copied(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = onednn.convolution()(x, w, None, *settings)
        return y.clone(memory_format=torch.contiguous_format).sigmoid().sin()

    return [
        (lambda x, w: torch.sigmoid(linear(x, w, None, "none", [], "")).sin(), (x, w)),
        (lambda x, w, z: (linear(x, w, None, "none", [], "") + z).sin(), (x, w, torch.ones(2, 4))),
        (copied, (image, kernel)),
    ]


PASS = FusePostOps()
