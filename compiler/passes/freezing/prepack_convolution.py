"""Compute convolutions with constant weights by oneDNN, which packs the weights once.

Rules:
    1. convolution(x, w, b, ...) -> mkldnn::_convolution_pointwise(x, w, b, ...)
    2. a transposed one -> mkldnn::_convolution_transpose_pointwise(x, w, b, ...)
    3. either, if the result has channels first -> clone(1. or 2. of clone(w, channels last)). If it
       is not transposed, only one with at least `min_products` products for each number, or with at
       most `max_numbers` numbers, or whose only user is an operator that `fuse_post_ops` fuses
The graph keeps the plain weight; code generation packs it (`codegen/packing.py`).
Preconditions: on a CPU with oneDNN; `w` is a constant; two or three dimensions, any groups; no size
is known to be 0, and the sizes of a transposed one are known; its output padding is smaller than
its stride; one dtype as for `prepack_linear`; dense results; the input or the weight has channels
last in memory, like oneDNN's result (3: the copy of the weight).
Reassociates: another kernel sums in another order.

Source: `_register_weight_pack_pass` of `torch/_inductor/fx_passes/mkldnn_fusion.py` leaves the
weight plain if the batch is symbolic; this pass packs it for the size of the first call. That one
gives results channels last even if the caller sees them, and takes small convolutions whose copy
costs more than the packing saves (measured: `docs/decisions.md`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant
from ctk.compiler.fx.types import channels_last_strides, is_dense, same_sizes, tensor_of
from ctk.compiler.passes.freezing.dense_operands import dense_operand
from ctk.compiler.passes.freezing.post_ops import is_post_op
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True, slots=True)
class PrepackConvolution(Pass):
    """Compute convolutions with constant weights by oneDNN, which packs the weights once.

    Attributes:
        min_products: Rule 3: the products of a number from which packing pays for a copy.
        max_numbers: Rule 3: the numbers of a result up to which the copy costs nothing.
    """

    name = "prepack_convolution"
    numerics = "reassociates"
    min_products: int = 1024
    max_numbers: int = 4096

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if not _is_packable(node):
                continue
            if _is_last(node):
                make = partial(_pack, rewriter, node)
                rewriter.replace_by("convolution(x, w) -> oneDNN's", [node], make)
            elif self._pays(node):
                make = partial(_pack_and_copy, rewriter, node)
                rewriter.replace_by("convolution(x, w) -> clone(oneDNN's)", [node], make)

    def _pays(self, node: Node) -> bool:
        """Rule 3: return whether packing pays although the result is copied."""
        result, weight = tensor_of(node), tensor_of(node.args[1])
        if result is None or weight is None or not is_dense(result):
            return False
        if not math.prod(weight.shape[1:]) > 1:  # of one number each: the format is ambiguous
            return False
        if node.args[6] or math.prod(weight.shape[1:]) >= self.min_products:
            return True
        users = list(node.users)
        if len(users) == 1 and is_post_op(users[0], codegen="c"):
            return True
        return math.prod(fake.hints_of(result.shape)) <= self.max_numbers


def _is_packable(node: Node) -> bool:
    if node.target is not aten.convolution.default or node.kwargs:
        return False
    x, weight, bias, *settings = node.args
    result, *operands = (tensor_of(each) for each in (node, x, weight))
    given = [result, *operands, *([tensor_of(bias)] if bias is not None else [])]
    if not is_constant(weight) or is_constant(x) or not all(map(_is_fitting, given)):
        return False
    assert result is not None  # _is_fitting has looked
    if len({each.dtype for each in given if each is not None}) > 1 or result.dim() not in _FORMATS:
        return False
    counts = [len(setting) for setting in settings[:3] if isinstance(setting, (list, tuple))]
    if counts != [result.dim() - 2] * 3 or not onednn.runs(result.dtype):
        return False
    return not settings[3] or _may_be_transposed(node, operands[0])


def _may_be_transposed(node: Node, x: torch.Tensor | None) -> bool:
    strides, padding = node.args[3], node.args[7]
    if x is None or any(map(fake.is_symbolic, x.shape)):
        return False
    if not isinstance(strides, Sequence) or not isinstance(padding, Sequence):
        return False
    if len(padding) != len(strides):
        return False
    pairs = zip(padding, strides, strict=True)
    return all(isinstance(p, int) and isinstance(s, int) and p < s for p, s in pairs)


def _is_fitting(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.device.type != "cpu":
        return False
    hints = fake.hints_of(tensor.shape)
    return len(hints) == tensor.dim() and 0 not in hints


def _is_last(node: Node) -> bool:
    """Return whether a result has its channels last already, and an operand that asks for it."""
    return _has_channels_last(node) and any(map(_has_channels_last, node.args[:2]))


def _has_channels_last(value: object) -> bool:
    tensor = tensor_of(value)
    assert tensor is not None  # _is_packable has looked
    return same_sizes(tensor.stride(), channels_last_strides(tensor.shape))


def _pack(rewriter: Rewriter, node: Node, weight: Node | None = None) -> Node:
    x, given, bias, stride, padding, dilation, is_transposed, more, groups = node.args
    bias = dense_operand(rewriter, bias, node)
    ending = (stride, dilation, groups, "none", [], "")
    operands = (x, weight or given, bias, padding)
    if not is_transposed:
        return rewriter.insert(onednn.convolution(), (*operands, *ending), before=node)
    target = onednn.transposed_convolution()
    packed = rewriter.insert(target, (*operands, more, *ending), before=node)
    packed.meta.setdefault("val", _with_channels_last(node))
    return packed


def _with_channels_last(node: Node) -> torch.Tensor:
    """Return the type of a node with its channels last."""
    tensor = tensor_of(node)
    assert tensor is not None  # _is_packable has looked
    with fake.fake_compute(fake.mode_of([tensor])):
        return tensor.new_empty(tensor.shape).to(memory_format=_FORMATS[tensor.dim()])


def _pack_and_copy(rewriter: Rewriter, node: Node) -> Node:
    weight = tensor_of(node.args[1])
    assert weight is not None  # _is_packable has looked
    options = {"memory_format": _FORMATS[weight.dim()]}
    copied = rewriter.insert(aten.clone.default, (node.args[1],), options, before=node)
    packed = _pack(rewriter, node, copied)
    options = {"memory_format": torch.contiguous_format}
    return rewriter.insert(aten.clone.default, (packed,), options, before=node)


def examples() -> list[Example]:
    """Return programs that the pass changes: one for each rule."""
    x, w = torch.ones(1, 2, 4, 4), torch.nn.Parameter(torch.ones(4, 2, 3, 3))
    v = torch.nn.Parameter(torch.ones(2, 4, 3, 3))
    plain = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    transposed = ([2, 2], [0, 0], [1, 1], True, [1, 1], 1)

    def last(x: torch.Tensor) -> torch.Tensor:
        return x.clone(memory_format=torch.channels_last)

    return [
        (lambda x, w: aten.convolution.default(last(x), w, None, *plain).sin(), (x, w)),
        (lambda x, v: aten.convolution.default(last(x), v, None, *transposed).sin(), (x, v)),
        (lambda x, w: aten.convolution.default(x, w, None, *plain).sin(), (x, w)),
    ]


PASS = PrepackConvolution()
