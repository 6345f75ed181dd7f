"""Fuse operators and quantizes into oneDNN's integer products and convolutions before them.

Rules, `y` being a layer of `prepack_quantized`:
    1. silu|gelu|tanh|leaky_relu(y) -> y with that as post-op (the last three: products only)
    2. relu|hardtanh|clamp|hardswish(y) -> y with that as post-op, if no NaN is possible: a static
       scale, and a bias of finite constants, because oneDNN turns a NaN into a number
    3. quantize_per_tensor(y, ...) -> clamp(y that gives integers); no clamp for all of a type
Preconditions: `y` has no other user, is float32, and has no post-op yet (3: any, and the scale is a
positive number, the type uint8 or int8); nothing is written between.
Reassociates: oneDNN multiplies scales before it rounds. So a number within a rounding error of the
middle between two integers may become the other one: one step of the quantization.

Source: `_register_qconv_unary_fusion`, `_register_qlinear_unary_fusion` and the output quantization
of `torch/_inductor/fx_passes/quantization.py` and `mkldnn_fusion.py` assume the whole range of an
integer type, and ignore NaN.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.constants import constant_value
from ctk.compiler.fx.properties import is_constant, is_written_between
from ctk.compiler.fx.types import same_layout, same_sizes, tensor_of
from ctk.compiler.passes.freezing.quantized import name_of
from ctk.compiler.patterns import HandlerRule, LazyTable, Match, Op, RuleTable, Var, apply_rules
from ctk.compiler.patterns.matcher import replace_match
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_BIAS, _ENDING = 6, 6
"""Position of a layer's bias, and the number of arguments that describe its result."""

_PostOp = tuple[str, list[float], str]
_Y = Var("y")


class FuseQuantized(Pass):
    """Fuse operators and quantizes into oneDNN's integer products and convolutions before them."""

    name = "fuse_quantized"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        if any(map(_is_layer, rewriter.graph.nodes)):
            apply_rules(rewriter, RULES.get())


def _is_layer(node: object) -> bool:
    if not isinstance(node, Node) or not onednn.runs_quantized():
        return False
    return node.target in (onednn.qlinear(), onednn.qlinear_dynamic(), onednn.qconvolution())


def _not_free(match: Match) -> str | None:
    """Return why a layer cannot fuse the operator behind it."""
    layer, root = match.bound["y"], match.root
    if not isinstance(layer, Node) or not _is_layer(layer):
        return f"{layer} is not a layer of integers"
    tensor = tensor_of(layer)
    if tensor is None or tensor.dtype != torch.float32:
        return f"{layer} does not give float32"
    if len(layer.users) != 1:
        return f"{layer} has other users"
    if is_written_between(layer, root):
        return f"something is written between {layer} and {root}"
    return None


def _may_be_post_op(match: Match, kind: str) -> str | None:
    reason = _not_free(match)
    if reason is not None:
        return reason
    layer = match.node("y")
    if layer.args[-3] != "none":
        return f"{layer} has a post-op: {layer.args[-3]}"
    if not same_layout(layer, match.root):
        return f"{match.root} has another layout than {layer}"
    if layer.target is onednn.qconvolution() and kind in _PRODUCTS_ONLY:
        return f"oneDNN's convolutions of integers know no {kind}"
    if _post_op(match, kind) is None:
        return f"oneDNN has no {kind} with these numbers"
    return _may_lose_nan(layer) if kind in _LOSE_NAN else None


def _may_lose_nan(layer: Node) -> str | None:
    if layer.target is onednn.qlinear_dynamic():
        return f"the scale of {layer} may be NaN, and oneDNN would make a number of that"
    bias = layer.args[_BIAS]
    if not isinstance(bias, Node):
        return None
    if not is_constant(bias):
        return f"the bias {bias} may be NaN, and oneDNN would make a number of that"
    with fake.real_compute():
        is_finite = bool(torch.isfinite(constant_value(bias)).all())
    return None if is_finite else f"the bias {bias} has a NaN or an infinity"


_LOSE_NAN = ("relu", "hardtanh", "hardswish")
_PRODUCTS_ONLY = ("gelu", "tanh", "leaky_relu")
_SIMPLE: Mapping[Callable[..., object], str] = {
    aten.relu.default: "relu",
    aten.hardswish.default: "hardswish",
    aten.silu.default: "swish",
    aten.tanh.default: "tanh",
}


def _post_op(match: Match, kind: str) -> _PostOp | None:
    """Return how oneDNN calls an operator, its numbers, and the algorithm."""
    bound = match.bound
    if kind == "gelu":
        return kind, [], cast("str", bound["how"])
    if kind == "leaky_relu":
        slope = bound["slope"]
        return (kind, [float(slope)], "") if isinstance(slope, (int, float)) else None
    if kind == "hardtanh":
        low, high = bound["low"], bound["high"]
        if not isinstance(low, (int, float)) or not isinstance(high, (int, float)):
            return None
        return (kind, [float(low), float(high)], "") if low <= high else None
    return kind, [], ""


def _fuse(rewriter: Rewriter, match: Match, name: str, kind: str) -> None:
    post_op, layer = _post_op(match, kind), match.node("y")
    assert post_op is not None  # _may_be_post_op has looked

    def replacement() -> Node:
        return rewriter.insert(layer.target, (*layer.args[:-3], *post_op), before=match.root)

    replace_match(rewriter, name, match, replacement)


def _may_requantize(match: Match) -> str | None:
    reason = _not_free(match)
    if reason is not None:
        return reason
    bound, layer, result = match.bound, match.node("y"), tensor_of(match.root)
    scale, zero, dtype = bound["scale"], bound["zero_point"], bound["dtype"]
    if dtype not in (torch.uint8, torch.int8):
        return f"oneDNN gives no {dtype}"
    info = torch.iinfo(cast("torch.dtype", dtype))
    numbers = (zero, bound["low"], bound["high"])
    if not isinstance(scale, float) or not all(isinstance(number, int) for number in numbers):
        return "the scale, the zero point or the bounds are no numbers"
    if not 0 < scale < math.inf or not 1 / scale < torch.finfo(torch.float32).max:
        return f"the scale is {scale}"
    zero, low, high = cast("tuple[int, int, int]", numbers)
    if not info.min <= low <= high <= info.max or not info.min <= zero <= info.max:
        return f"zero point {zero} and bounds {low}, {high} are not of {dtype}"
    product = tensor_of(layer)
    if result is None or product is None or not same_sizes(result.stride(), product.stride()):
        return f"{match.root} has other strides than {layer}"
    return None


def _requantize(rewriter: Rewriter, match: Match) -> None:
    bound, layer = match.bound, match.node("y")
    info = torch.iinfo(cast("torch.dtype", bound["dtype"]))
    ending = (bound["scale"], bound["zero_point"], bound["dtype"], *layer.args[-3:])

    def replacement() -> Node:
        args = (*layer.args[:-_ENDING], *ending)
        made = rewriter.insert(layer.target, args, before=match.root)
        if (bound["low"], bound["high"]) == (info.min, info.max):
            return made
        bounds = (made, bound["low"], bound["high"])
        return rewriter.insert(aten.clamp.default, bounds, before=match.root)

    replace_match(rewriter, "quantize(layer) -> layer", match, replacement)


def _post_op_rule(kind: str, pattern: Op) -> HandlerRule:
    name = f"{name_of(pattern)}(layer of integers) -> layer"
    return HandlerRule(
        name,
        pattern,
        lambda rewriter, match: _fuse(rewriter, match, name, kind),
        partial(_may_be_post_op, kind=kind),
    )


def _fill(table: RuleTable, devices: tuple[str, ...]) -> None:
    bounds = Var("low"), Var("high")
    for target, kind in _SIMPLE.items():
        table.add(_post_op_rule(kind, Op(target, (_Y,))))
    table.add(_post_op_rule("gelu", Op(aten.gelu.default, (_Y,), {"approximate": Var("how")})))
    table.add(_post_op_rule("leaky_relu", Op(aten.leaky_relu.default, (_Y, Var("slope")))))
    table.add(_post_op_rule("hardtanh", Op(aten.hardtanh.default, (_Y, *bounds))))
    table.add(_post_op_rule("hardtanh", Op(aten.clamp.default, (_Y, *bounds))))
    more = map(Var, ("scale", "zero_point", "low", "high", "dtype"))
    quantize = Op(onednn.quantized_decomposed().quantize_per_tensor.default, (_Y, *more))
    table.add(HandlerRule("quantize(layer) -> layer", quantize, _requantize, _may_requantize))


RULES = LazyTable(_fill)
PASS = FuseQuantized()
