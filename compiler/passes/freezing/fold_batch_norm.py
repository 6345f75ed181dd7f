"""Fold a batch norm that uses its running statistics into the convolution or product before it.

Rules, with `s = gamma / sqrt(var + eps)`, one number per output channel:
    batch_norm(convolution(x, w, b)) -> convolution(x, w * s, (b - mean) * s + beta)
    batch_norm(addmm(b, x, w)) -> addmm((b - mean) * s + beta, x, w * s)
    batch_norm(mm(x, w)) -> addmm(beta - mean * s, x, w * s)
Convolutions of any dimension, grouped, transposed; `b`, `gamma` and `beta` may be missing.
Preconditions: `w` is a constant; the product has no other user; all dtypes are the same, float32 or
float64 (in 16 bits the rounded weights would lose more than the rounded result did); `eps` is
positive; the result keeps its strides. Reassociates.

The stage is `frozen`: it has no gradients, and weights are constants, so that `w * s` is computed
once if the statistics are constants as well. Buffers are inputs (a program may change them between
calls), and then `w * s` is computed in each call: only if the weight has fewer elements than the
result, which is read and written once less for it.

Source: `torch/_inductor/fx_passes/efficient_conv_bn_eval.py` and `torch.nn.utils.fusion` rewrite
modules of the captured graph; this pass rewrites ATen after freezing, so that it also covers linear
layers and functional batch norms.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

import torch
from torch import Tensor
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant, is_written_between
from ctk.compiler.fx.types import same_sizes, tensor_of, type_text
from ctk.compiler.passes.freezing.quantized import is_quantized
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.patterns.matcher import replace_match
from ctk.compiler.patterns.solve import matches
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
_STATISTICS = ("gamma", "beta", "mean", "var")
_SETTINGS = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")


def _normalize(product: Op) -> Op:
    operands = (product, *map(Var, (*_STATISTICS, "momentum", "eps")))
    return Op(
        operator.getitem, (Op(aten._native_batch_norm_legit_no_training.default, operands), 0)
    )


def _may_fold(match: Match) -> str | None:
    norm, product, *_ = match.inner
    weight, result = match.node("w"), tensor_of(match.root)
    if len(product.users) != 1:
        return f"the product {product} has other users"
    if any(user.users for user in norm.users if user is not match.root):
        return f"the statistics of {norm} are used"
    if not is_constant(weight):
        return f"the weight {weight} is not a constant"
    if is_quantized(weight):
        return f"the weight {weight} is quantized"
    if is_written_between(product, match.root):
        return f"something is written between {product} and {match.root}"
    operands = [match.bound.get(name) for name in ("x", "w", "b", *_STATISTICS)]
    types = [tensor_of(operand) for operand in operands if operand is not None]
    if result is None or result.dtype not in (torch.float32, torch.float64):
        return f"{match.root} is neither float32 nor float64"
    if any(each is None or each.dtype != result.dtype for each in types):
        return "the operands have different dtypes"
    bias = tensor_of(match.bound.get("b"))
    if bias is not None and bias.dim() != 1:
        return f"the bias {type_text(bias)} is not a row"
    eps = match.bound["eps"]
    if not isinstance(eps, float) or eps <= 0:
        return f"eps is {eps}: a variance of 0 would give an infinite weight"
    return _keeps_layout(match, result) or _costs_more(match, weight, result)


def _keeps_layout(match: Match, result: torch.Tensor) -> str | None:
    product = tensor_of(match.inner[1])
    if product is None or not same_sizes(product.stride(), result.stride()):
        return f"{match.root} has other strides than {match.inner[1]}"
    return None


def _costs_more(match: Match, weight: Node, result: torch.Tensor) -> str | None:
    """Return whether scaling pays: with statistics as inputs, each call scales; a symbol is 1."""
    given = [match.bound[name] for name in _STATISTICS]
    if all(is_constant(each) for each in given if each is not None):
        return None
    tensor = tensor_of(weight)
    count = math.prod(size for size in result.shape if not fake.is_symbolic(size))
    if tensor is None or tensor.numel() > count:
        return f"scaling {weight} in each call costs more than the batch norm"
    return None


def _scale_and_bias(call: Callable[..., Node], bound: Mapping[str, object]) -> tuple[Node, Node]:
    """Return `s`, and `(b - mean) * s + beta`."""
    scale = call(aten.rsqrt.default, call(aten.add.Tensor, bound["var"], bound["eps"]))
    if bound["gamma"] is not None:
        scale = call(aten.mul.Tensor, scale, bound["gamma"])
    if bound.get("b") is None:
        bias = call(aten.neg.default, bound["mean"])
    else:
        bias = call(aten.sub.Tensor, bound["b"], bound["mean"])
    bias = call(aten.mul.Tensor, bias, scale)
    return scale, bias if bound["beta"] is None else call(aten.add.Tensor, bias, bound["beta"])


def _fold_convolution(rewriter: Rewriter, match: Match) -> Node:
    call, weight, bound = rewriter.inserter(before=match.root), match.node("w"), match.bound
    scale, bias = _scale_and_bias(call, bound)
    for target, args in along_outputs(weight, bound["transposed"], bound["groups"]):
        scale = call(target, scale, *args)
    folded = call(aten.mul.Tensor, weight, scale)
    settings = [bound[name] for name in _SETTINGS]
    return call(aten.convolution.default, match.node("x"), folded, bias, *settings)


def along_outputs(
    weight: Node, transposed: object, groups: object
) -> list[tuple[object, tuple[object, ...]]]:
    """Return the views that bring one number per output channel to the shape of a weight.

    A weight is [outputs, inputs / groups, ...], of a transposed convolution
    [inputs, outputs / groups, ...], where each group of inputs has outputs of its own.
    """
    shape = tensor_of(weight).shape  # type: ignore[union-attr]  # the guard has looked
    ones = [1] * (len(shape) - 2)
    if transposed is not True:
        return [(aten.view.default, ([shape[0], 1, *ones],))]
    if groups == 1:
        return [(aten.view.default, ([1, shape[1], *ones],))]
    inputs = shape[0] // groups  # type: ignore[operator]  # an int of the schema
    return [
        (aten.view.default, ([groups, 1, shape[1]],)),
        (aten.expand.default, ([groups, inputs, shape[1]],)),
        (aten.reshape.default, ([shape[0], shape[1], *ones],)),
    ]


def _fold_product(rewriter: Rewriter, match: Match) -> Node:
    call = rewriter.inserter(before=match.root)
    scale, bias = _scale_and_bias(call, match.bound)
    folded = call(aten.mul.Tensor, match.node("w"), scale)
    return call(aten.addmm.default, bias, match.node("x"), folded)


_X, _W, _B = Var("x"), Var("w"), Var("b")
_CONVOLUTION = Op(aten.convolution.default, (_X, _W, _B, *map(Var, _SETTINGS)))
RULES = RuleTable(
    Rule(
        "batch_norm(convolution) -> convolution",
        _normalize(_CONVOLUTION),
        _fold_convolution,
        _may_fold,
    ),
    Rule(
        "batch_norm(addmm) -> addmm",
        _normalize(Op(aten.addmm.default, (_B, _X, _W))),
        _fold_product,
        _may_fold,
    ),
    Rule(
        "batch_norm(mm) -> addmm",
        _normalize(Op(aten.mm.default, (_X, _W))),
        _fold_product,
        _may_fold,
    ),
)


class FoldBatchNorm(Pass):
    """Fold a batch norm that uses its running statistics into the layer before it."""

    name = "fold_batch_norm"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, RULES)


def fold_behind(rewriter: Rewriter, node: Node, made: AbstractSet[Node]) -> list[Node]:
    """Apply the rules at a node behind a product that another rewrite has just made.

    Other products had their turn, and may have been vetoed.

    Returns:
        The product with the batch norm in it, if there is one.
    """
    for rule in RULES.at(node) if made else ():
        assert isinstance(rule, Rule)  # so is each of the table
        for match in matches(rule.pattern, node):
            if made.isdisjoint(match.inner) or rule.guard(match) is not None:
                continue
            new: list[Node] = []
            replace_match(rewriter, rule.name, match, partial(_record, rewriter, rule, match, new))
            return new
    return []


def _record(rewriter: Rewriter, rule: Rule, match: Match, new: list[Node]) -> Sequence[Node]:
    """Return the replacement of a match, and record it."""
    made = rule.replacement(rewriter, match)
    new += [made] if isinstance(made, Node) else made
    return new


def examples() -> list[Example]:
    """Return programs that the pass changes: one for each rule, and other convolutions."""
    norm = aten._native_batch_norm_legit_no_training.default

    def convolved(stride: int, transposed: bool, groups: int) -> Callable[..., Tensor]:
        def program(x: Tensor, w: Tensor, b: Tensor, s: Tensor) -> Tensor:
            settings = ([stride] * 2, [0, 0], [1, 1], transposed, [0, 0], groups)
            return norm(aten.convolution.default(x, w, b, *settings), s, s, s, s, 0.1, 0.5)[0]

        return program

    def constant(*shape: int) -> Tensor:
        return torch.nn.Parameter(torch.ones(shape))

    x, row = torch.ones(2, 4, 3, 3), constant(4)
    y, w = torch.ones(2, 3), constant(3, 4)
    return [
        (convolved(1, transposed=False, groups=1), (x, constant(4, 4, 2, 2), row, row)),
        (convolved(2, transposed=False, groups=2), (x, constant(4, 2, 1, 1), row, row)),
        (convolved(1, transposed=True, groups=1), (x, constant(4, 4, 2, 2), row, row)),
        (convolved(2, transposed=True, groups=2), (x, constant(4, 2, 2, 2), row, row)),
        (lambda y, w, b, s: norm(torch.addmm(b, y, w), s, s, s, s, 0.1, 0.5)[0], (y, w, row, row)),
        (lambda y, w, s: norm(torch.mm(y, w), s, None, s, s, 0.1, 0.5)[0], (y, w, row)),
    ]


PASS = FoldBatchNorm()
