"""Fuse operators and quantizes into oneDNN's integer products and convolutions before them.

Rules, `y` being a layer of `prepack_quantized`:
    1. silu|gelu|tanh|leaky_relu(y) -> y with that as post-op (the last three: products only)
    2. relu|hardtanh|clamp|hardswish(y) -> y with that as post-op, if no NaN is possible: a static
       scale, and a bias of finite constants, because oneDNN turns a NaN into a number
    3. quantize_per_tensor(y, ...) -> clamp(y that gives integers); no clamp for all of a type
    4. y + z, z + y -> y with `add` of `z` as post-op, `y` a product; relu behind it as 2, if `z` is
       a layer whose result is not NaN
    5. f(clone(y)) -> clone(f(y)), `f` of the rules above with one operand
    6. quantize_per_tensor([relu](y + dequantize_per_tensor(z)), ...) -> y added into z, or into a
       clone of z if that has later readers, and clamp as in 3; `y` a convolution of two dimensions
Preconditions: `y` has no other user, is float32, and has no post-op yet (3: any, and the scale is a
positive number, the type uint8 or int8); 4: `z` has the type and strides of `y` and of the result,
and does not depend on `y`; 6: the type and strides of `z` are those of the result; nothing is
written between.
Reassociates: oneDNN multiplies scales before it rounds. So a number within a rounding error of the
middle between two integers may become the other one: one step of the quantization.

Source: `_register_qconv_unary_fusion`, `_register_qlinear_unary_fusion` and the output quantization
of `torch/_inductor/fx_passes/quantization.py` and `mkldnn_fusion.py` assume the whole range of an
integer type, and ignore NaN. `_register_qconv_binary_fusion` adds into `z` by marks of the
scheduler, and sums of floats as well; those are left to a generated kernel here.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.constants import constant_value
from ctk.compiler.fx.properties import base_of, is_constant, is_written_between
from ctk.compiler.fx.types import same_layout, same_sizes, tensor_of
from ctk.compiler.passes.freezing.quantized import integers_of, is_call_of, is_fixed, name_of
from ctk.compiler.passes.post_grad.reinplace import find_destination
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
            for node in rewriter.nodes():
                if _may_sink(node):
                    make = partial(_sink, rewriter, node)
                    rule = f"{node.target}(clone(layer)) -> clone"
                    rewriter.replace_by(rule, [node], make, erase=[node.all_input_nodes[0]])
            apply_rules(rewriter, RULES.get())


def _is_layer(node: object) -> bool:
    if not isinstance(node, Node) or not onednn.runs_quantized():
        return False
    return node.target in (*onednn.qlinears(), onednn.qconvolution())


def _may_sink(node: Node) -> bool:
    """Rule 5: return whether an operator may come in front of the copy that it reads."""
    if node.target not in _SINKABLE and not is_call_of(node, "quantize_per_tensor"):
        return False
    copy = node.args[0]
    if len(node.all_input_nodes) != 1 or not isinstance(copy, Node) or len(copy.users) > 1:
        return False
    source = copy.args[0] if copy.target is aten.clone.default else None
    if not _is_layer(_behind_sinkable(source)):
        return False
    types = tensor_of(copy), tensor_of(node)
    if len(copy.all_input_nodes[0].users) > 1 or any(each is None for each in types):
        return False
    before, behind = (each.stride() for each in types if each is not None)
    return same_sizes(before, behind) and not is_written_between(copy, node)


def _behind_sinkable(value: object) -> object:
    """Return the operand of operators that were moved here before."""
    while isinstance(value, Node) and value.target in _SINKABLE and len(value.users) == 1:
        value = value.args[0]
    return value


def _sink(rewriter: Rewriter, node: Node) -> Node:
    copy = node.all_input_nodes[0]
    made = rewriter.insert(node.target, (copy.args[0], *node.args[1:]), node.kwargs, before=node)
    return rewriter.insert(copy.target, (made,), copy.kwargs, before=node)


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
    if layer.target in onednn.qlinears()[2:] and kind != "relu":
        return f"oneDNN has no {kind} behind a sum"
    if layer.target is onednn.qconvolution() and kind in _PRODUCTS_ONLY:
        return f"oneDNN's convolutions of integers know no {kind}"
    if _post_op(match, kind) is None:
        return f"oneDNN has no {kind} with these numbers"
    return _may_lose_nan(layer) if kind in _LOSE_NAN else None


def _may_lose_nan(layer: Node) -> str | None:
    if layer.target not in (onednn.qlinear(), onednn.qlinear_sum(), onednn.qconvolution()):
        return f"the scale of {layer} may be NaN, and oneDNN would make a number of that"
    if layer.target is onednn.qlinear_sum():
        other = layer.args[_BIAS]
        if not isinstance(other, Node) or not _is_layer(other):
            return f"{other} may be NaN, and oneDNN would make a number of that"
        if (reason := _may_lose_nan(other)) is not None:
            return reason
    bias = layer.args[_bias_place(layer)]
    if not isinstance(bias, Node):
        return None
    if not is_constant(bias):
        return f"the bias {bias} may be NaN, and oneDNN would make a number of that"
    with fake.real_compute():
        is_finite = bool(torch.isfinite(constant_value(bias)).all())
    return None if is_finite else f"the bias {bias} has a NaN or an infinity"


def _bias_place(layer: Node) -> int:
    return _BIAS + (layer.target in onednn.qlinears()[2:])


_SINKABLE = (
    *(aten.relu.default, aten.hardswish.default, aten.silu.default),
    *(aten.hardtanh.default, aten.clamp.default),
)
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
    return _not_free(match) or _cannot_give(match)


def _cannot_give(match: Match) -> str | None:
    """Return why a layer cannot give the integers of a quantize."""
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
    ending = (bound["scale"], bound["zero_point"], bound["dtype"], *layer.args[-3:])

    def replacement() -> Node:
        args = (*layer.args[:-_ENDING], *ending)
        if layer.target in onednn.qlinears()[2:]:
            place = _BIAS + 2
            args = (*layer.args[:place], *ending[:3], *layer.args[place + 3 :])
        made = rewriter.insert(layer.target, args, before=match.root)
        return _clamped(rewriter, match, made)

    replace_match(rewriter, "quantize(layer) -> layer", match, replacement)


def _clamped(rewriter: Rewriter, match: Match, made: Node) -> Node:
    """Keep the bounds of a quantize, unless they are those of its type."""
    bound = match.bound
    info = torch.iinfo(cast("torch.dtype", bound["dtype"]))
    if (bound["low"], bound["high"]) == (info.min, info.max):
        return made
    bounds = (made, bound["low"], bound["high"])
    return rewriter.insert(aten.clamp.default, bounds, before=match.root)


def _may_add(match: Match) -> str | None:
    reason = _not_free(match)
    if reason is not None:
        return reason
    layer, other, root = match.node("y"), match.bound["z"], match.root
    if layer.target not in onednn.qlinears()[:2] or layer.args[-3] != "none":
        return f"{layer} is not a product without post-op"
    if not isinstance(other, Node) or other is layer:
        return f"{other} is not another tensor"
    if not same_layout(layer, root) or not same_layout(other, root):
        return f"{other} has another type or layout than {layer}"
    return None


def _add(rewriter: Rewriter, match: Match) -> None:
    layer, root = match.node("y"), match.root
    index = onednn.qlinears().index(layer.target)

    def replacement() -> Node:
        target = onednn.qlinears()[index + 2]
        first, (bias, *result) = layer.args[:_BIAS], layer.args[_BIAS : _BIAS + 4]
        args = (*first, match.bound["z"], bias, *result, 1.0, 0, "add", 1.0, "none", [], "")
        made = rewriter.insert(target, args, before=root)
        made.meta.setdefault("val", root.meta.get("val"))
        return made

    replace_match(rewriter, "layer + z -> layer", match, replacement)


def _may_accumulate(match: Match) -> str | None:
    reason = _not_free(match)
    if reason is not None:
        return reason
    layer, root, addend = match.node("y"), match.root, match.bound["z"]
    if layer.target is not onednn.qconvolution() or layer.args[-3] != "none":
        return f"{layer} is not a convolution without post-op"
    tensor, found = tensor_of(layer), integers_of(addend)
    if tensor is None or tensor.dim() != 4:
        return f"{layer} is not of two dimensions"
    if found is None or not isinstance(addend, Node) or not is_fixed(found):
        return f"{addend} is not dequantized with one number for all"
    if not same_layout(found.node, root) or not same_layout(layer, addend):
        return f"{found.node} has another type or layout than {root}"
    if is_constant(found.node):
        return f"{found.node} is a constant"
    if is_written_between(addend, root):
        return f"something is written between {addend} and {root}"
    return _cannot_give(match) or _may_lose_nan(layer)


def _accumulate(rewriter: Rewriter, match: Match, unary: str) -> None:
    layer, root, bound = match.node("y"), match.root, match.bound
    found = integers_of(bound["z"])
    assert found is not None  # _may_accumulate has looked
    places = {node: place for place, node in enumerate(rewriter.graph.nodes)}
    is_free = base_of(found.node) is not base_of(layer.all_input_nodes[0])
    is_dead = is_free and find_destination(root, found.node, root, places) is not None

    def replacement() -> Node:
        call = rewriter.inserter(before=root)
        total = found.node if is_dead else call(aten.clone.default, found.node)
        result = bound["scale"], bound["zero_point"], bound["dtype"]
        settings = (*layer.args[_BIAS:-_ENDING], *result, found.scale, found.zero_point)
        more = (*settings, "sum", 1.0, unary, [], "")
        call(onednn.qconvolution_sum(), *layer.args[:_BIAS], total, *more)
        return _clamped(rewriter, match, total)

    replace_match(rewriter, "quantize(layer + dequantize) -> layer", match, replacement)


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
    more = tuple(map(Var, ("scale", "zero_point", "low", "high", "dtype")))
    for operands in ((_Y, Var("z")), (Var("z"), _Y)):
        add = Op(aten.add.Tensor, operands)
        table.add(HandlerRule("layer + z -> layer", add, _add, _may_add))
    library = onednn.quantized_decomposed()
    quantize = partial(Op, library.quantize_per_tensor.default)
    rule = HandlerRule(
        "quantize(layer) -> layer", quantize((_Y, *more)), _requantize, _may_requantize
    )
    table.add(rule)
    for operands in ((_Y, Var("z")), (Var("z"), _Y)):
        add = Op(aten.add.Tensor, operands)
        for unary, total in (("none", add), ("relu", Op(aten.relu.default, (add,)))):
            make = partial(_accumulate, unary=unary)
            name, pattern = "quantize(layer + dequantize) -> layer", quantize((total, *more))
            table.add(HandlerRule(name, pattern, make, _may_accumulate, keeps_inner=False))


RULES = LazyTable(_fill)
PASS = FuseQuantized()
