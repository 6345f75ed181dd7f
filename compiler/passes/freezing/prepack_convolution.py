"""Compute convolutions with constant weights by oneDNN, which packs the weights once.

Rule: `convolution(x, w, b, ...)` -> `mkldnn::_convolution_pointwise(x, w, b, ...)`. The graph keeps
the plain weight; code generation packs it (`codegen/packing.py`).
Preconditions: on a CPU with oneDNN; `w` is a constant; two or three dimensions, not transposed,
any groups; all sizes known, none 0; one dtype as for `prepack_linear`; the result and the input or
the weight have channels last (a result of `to_channels_last`), like oneDNN's result.
Reassociates: another kernel sums in another order.

Source: `_register_weight_pack_pass` of `torch/_inductor/fx_passes/mkldnn_fusion.py` also takes
transposed convolutions, and gives results channels last even if the caller sees them.
"""

from functools import partial

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


class PrepackConvolution(Pass):
    """Compute convolutions with constant weights by oneDNN, which packs the weights once."""

    name = "prepack_convolution"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if _is_packable(node):
                make = partial(_pack, rewriter, node)
                rewriter.replace_by("convolution(x, w) -> oneDNN's", [node], make)


def _is_packable(node: Node) -> bool:
    if node.target is not aten.convolution.default or node.kwargs or node.args[6] is not False:
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
    return _has_channels_last(result) and any(map(_has_channels_last, operands))


def _is_fitting(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.device.type != "cpu":
        return False
    return not any(fake.is_symbolic(size) or size == 0 for size in tensor.shape)


def _has_channels_last(tensor: torch.Tensor | None) -> bool:
    """Return whether a tensor has just the strides of its format."""
    if tensor is None or tensor.dim() not in _FORMATS:
        return False
    wanted = torch.empty(tensor.shape, device="meta").to(memory_format=_FORMATS[tensor.dim()])
    return wanted.stride() == tensor.stride()


def _pack(rewriter: Rewriter, node: Node) -> Node:
    x, weight, bias, stride, padding, dilation, *_, groups = node.args
    operands = (x, weight, bias, padding, stride, dilation, groups, "none", [], "")
    return rewriter.insert(onednn.convolution(), operands, before=node)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, w = torch.ones(1, 2, 4, 4), torch.nn.Parameter(torch.ones(4, 2, 3, 3))
    plain = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    return [
        (
            lambda x, w: aten.convolution.default(
                x.clone(memory_format=torch.channels_last), w, None, *plain
            ).sin(),
            (x, w),
        ),
    ]


PASS = PrepackConvolution()
