"""Fold a batch norm that uses its running statistics into the convolution before it.

Rule, with `s = gamma / sqrt(var + eps)`, one number per output channel:
    batch_norm(conv(x, w, b)) -> conv(x, w * s, (b - mean) * s + beta)
Convolutions of one to three dimensions, with groups; `b`, `gamma` and `beta` may be missing. It is
the efficient form for training with fixed statistics: gradients flow to `w`, `b`, `gamma` and
`beta` through the arithmetic, and the result of the convolution need not be saved for backward.
Preconditions: the convolution has no other user, and nothing is written and no mode is set between
the two; all are float32 or float64 of one kind; `eps` is positive; the weight has fewer elements
than the result, since `w * s` is computed in each call; not where `freezing` will fold once and for
all (`fold_batch_norm`). Reassociates.

Source: "Efficient ConvBN Blocks for Transfer Learning and Beyond" (arXiv 2305.11624), as in
`torch/_inductor/fx_passes/efficient_conv_bn_eval.py`, which takes every size of weight, and is off
by default.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.fx import Node

from ctk.compiler.fx.effects import is_barred
from ctk.compiler.fx.torch_calls import TorchCall, call_of, function_of, plain_tensor_of
from ctk.compiler.fx.types import same_sizes
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

_CONVOLUTIONS = (torch.conv1d, torch.conv2d, torch.conv3d)
_SETTINGS = ("stride", "padding", "dilation", "groups")


class FoldConvBatchNorm(Pass):
    """Fold a batch norm that uses its running statistics into the convolution before it."""

    name = "fold_conv_batch_norm"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        if rewriter.config.freezing and not torch.is_grad_enabled():
            return
        for node in rewriter.nodes():
            norm = call_of(node) if function_of(node) is F.batch_norm else None
            product = norm.node("input") if norm is not None else None
            call = call_of(product)
            if norm is None or product is None or call is None:
                continue
            if call.function in _CONVOLUTIONS and _may_fold(node, norm, product, call):
                _fold(rewriter, node, norm, product, call)


def _may_fold(node: Node, norm: TorchCall, product: Node, call: TorchCall) -> bool:
    eps = norm.arguments["eps"]
    if len(product.users) != 1 or norm.arguments["training"] is not False:
        return False
    if not isinstance(eps, float) or eps <= 0 or is_barred(product, node):
        return False
    names = ("running_mean", "running_var", "weight", "bias")
    given = [*(norm.arguments[name] for name in names), call.arguments["bias"]]
    if given[0] is None or given[1] is None:
        return False
    operands = [node, product, call.node("input"), call.node("weight")]
    types = [plain_tensor_of(each) for each in (*operands, *given) if each is not None]
    if any(each is None or each.dtype not in (torch.float32, torch.float64) for each in types):
        return False
    return len({each.dtype for each in types if each is not None}) == 1 and _pays(node, call)


def _pays(node: Node, call: TorchCall) -> bool:
    """Return whether the result has the channels of the weight, and more elements.

    A convolution of an image without a batch has its channels where a batch norm does not look. A
    symbol counts as in this compile, 1 if that is unknown; no guard is added.
    """
    result, weight = plain_tensor_of(node), plain_tensor_of(call.node("weight"))
    if result is None or weight is None or result.dim() != weight.dim():
        return False
    if not same_sizes(result.shape[1:2], weight.shape[:1]):
        return False
    if any(map(fake.is_symbolic, weight.shape)):
        return False
    return weight.numel() < math.prod(map(_hint, result.shape))


def _hint(size: int) -> int:
    return int(fake.symbol_and_hint(size)[1] or 1) if fake.is_symbolic(size) else size


def _fold(rewriter: Rewriter, node: Node, norm: TorchCall, product: Node, call: TorchCall) -> None:
    insert = rewriter.inserter(before=node)

    def make() -> Node:
        weight = call.node("weight")
        scale, bias = _scale_and_bias(insert, norm, call)
        ones = [1] * (plain_tensor_of(weight).dim() - 1)  # type: ignore[union-attr]  # _pays has looked
        folded = insert(torch.mul, weight, insert(torch.reshape, scale, (-1, *ones)))
        settings = [call.arguments[name] for name in _SETTINGS]
        return insert(call.function, call.arguments["input"], folded, bias, *settings)

    rewriter.replace_by("batch_norm(conv) -> conv", [node, product], make, erase=[product])


def _scale_and_bias(
    insert: Callable[..., Node], norm: TorchCall, call: TorchCall
) -> tuple[Node, Node]:
    """Return `s`, and `(b - mean) * s + beta`."""
    given, bias = norm.arguments, call.node("bias")
    scale = insert(torch.rsqrt, insert(torch.add, given["running_var"], given["eps"]))
    if given["weight"] is not None:
        scale = insert(torch.mul, scale, given["weight"])
    mean = given["running_mean"]
    bias = insert(torch.neg, mean) if bias is None else insert(torch.sub, bias, mean)
    bias = insert(torch.mul, bias, scale)
    return scale, bias if given["bias"] is None else insert(torch.add, bias, given["bias"])


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, w, row = torch.ones(2, 3, 4, 4), torch.ones(2, 3, 2, 2), torch.ones(2)
    return [
        (lambda x, w, b, s: F.batch_norm(torch.conv2d(x, w, b), s, s, s, s), (x, w, row, row)),
        (lambda x, w, s: F.batch_norm(torch.conv2d(x, w), s, s), (x, w, row)),
    ]


PASS = FoldConvBatchNorm()
