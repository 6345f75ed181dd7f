"""Move dequantizes next to the layers that read them, one to each, so that layers take integers.

Rules, `dequantize` being `quantized_decomposed::dequantize_per_tensor`:
    1. view|permute|t|transpose|clone(dequantize(q)) -> dequantize(the same of q)
    2. layer(dequantize(q), w) -> layer(another dequantize(q), w), if it has another reader
    3. max_pool2d(dequantize(q)) -> dequantize(max_pool2d(q)), without its indices
    4. cat([dequantize(q), dequantize(r)...]) -> dequantize(cat([q, r...])), all with one scale
    5. quantize(dequantize(q)) -> q, or a clamp of it, with the same scale, zero point and type
Preconditions: 1: a layer or a quantize reads the value; 1, 3, 4: the dequantized tensor and its
views do not leave the graph, and nothing writes to them or between; `q` has its strides; 3, 4, 5:
the scale is a number between 1e-30 and 1e30; 3: `q` is uint8, with at most 255
places; 5: `q` has 8 bits, its numbers 32 or more. Exact: each number is computed from the same
integer, and the order of integers is that of their numbers. Copies without a layer are merged again
later (`eliminate_common_subexpressions`).

Source: `_register_dequant_promotion_pass` of `torch/_inductor/fx_passes/quantization.py` copies the
chain behind a dequantize for each user; this pass moves the chain in front of it, where it moves a
quarter of the bytes. Rules 3 to 5 serve `_register_quantization_maxpool2d`, `_cat` and `_reshape`,
which match the quantize as well, and take scales that differ by a part in 100,000 for equal.
"""

from collections.abc import Callable

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_written_between
from ctk.compiler.passes.freezing.integer_operators import INTEGER_RULES, drop_round_trips
from ctk.compiler.passes.freezing.quantized import (
    LAYERS,
    integers_of,
    is_call_of,
    name_of,
    reason_to_stay,
)
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_X = Var("x")
_VIEWS = (
    Op(aten.view.default, (_X, Var("sizes"))),
    Op(aten._unsafe_view.default, (_X, Var("sizes"))),
    Op(aten.permute.default, (_X, Var("order"))),
    Op(aten.t.default, (_X,)),
    Op(aten.transpose.int, (_X, Var("first"), Var("second"))),
    Op(aten.clone.default, (_X,), {"memory_format": Var("format")}),
)
"""Operators that can be applied to the integers instead."""


class PromoteDequantize(Pass):
    """Bring dequantizes to the layers that read them, one to each."""

    name = "promote_dequantize"

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, RULES)
        drop_round_trips(rewriter)


def _is_movable(match: Match) -> str | None:
    y, view = match.bound["x"], match.root
    found = integers_of(y)
    if found is None or found.axis is not None or not isinstance(y, Node):
        return f"{y} is not dequantized with one scale for all"
    if not _feeds_layer(view):
        return f"no layer reads {view}"
    return reason_to_stay(y, found, view)


def _feeds_layer(view: Node) -> bool:
    """Return whether a layer or a quantize reads a node, or a view of it."""
    queue = [view]
    while queue:
        for user in queue.pop().users:
            if user.target in LAYERS or is_call_of(user, "quantize_per_tensor"):
                return True
            if any(user.target is view.target for view in _VIEWS):
                queue.append(user)
    return False


def _move(rewriter: Rewriter, match: Match) -> Node:
    y, view = match.node("x"), match.root
    found = integers_of(y)
    assert found is not None  # _is_movable has looked
    args = (found.node, *view.args[1:])
    integers = rewriter.insert(view.target, args, view.kwargs, before=view)
    return rewriter.insert(y.target, (integers, *y.args[1:]), y.kwargs, before=view)


def _is_shared(match: Match) -> str | None:
    x = match.bound["x"]
    integers = integers_of(x)
    if integers is None or not isinstance(x, Node):
        return f"{x} is not a dequantized tensor"
    if len(x.users) == 1:
        return f"{x} has no other reader"
    if is_written_between(x, match.root):
        return f"something is written between {x} and {match.root}"
    return None


def _copy(rewriter: Rewriter, match: Match) -> Node:
    x, layer = match.node("x"), match.root
    own = rewriter.insert(x.target, x.args, x.kwargs, before=layer)
    args = tuple(own if arg is x else arg for arg in layer.args)
    return rewriter.insert(layer.target, args, layer.kwargs, before=layer)


_REST = tuple(Var(f"rest{number}") for number in range(8))
_LAYERS = {
    "convolution": Op(aten.convolution.default, (_X, *_REST)),
    "addmm": Op(aten.addmm.default, (Var("b"), _X, Var("w"))),
    "mm": Op(aten.mm.default, (_X, Var("w"))),
}
RULES = RuleTable(
    *(
        Rule(f"{name_of(view)}(dequantize) -> dequantize of it", view, _move, _is_movable)
        for view in _VIEWS
    ),
    *(
        Rule(f"{name}(shared dequantize) -> {name}(its own)", layer, _copy, _is_shared)
        for name, layer in _LAYERS.items()
    ),
    *INTEGER_RULES,
)


def examples() -> list[Example]:
    """Return programs that the pass changes: one for each rule."""
    library = onednn.quantized_decomposed()

    def read(x: torch.Tensor) -> torch.Tensor:
        return library.dequantize_per_tensor.default(x, 0.5, 3, 0, 127, torch.uint8)

    def through(view: Callable[..., torch.Tensor], *args: object) -> Callable[..., object]:
        return lambda x, w: torch.mm(view(read(x), *args), w)

    def share(layer: Callable[..., torch.Tensor]) -> Callable[..., object]:
        def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            y = read(x)
            return layer(y, w).sum() + y.sin().sum()

        return program

    def pooled(*settings: object) -> Callable[..., object]:
        pool = aten.max_pool2d_with_indices.default
        return lambda image: pool(read(image), *settings)[0].sin()

    settings = ([2, 2], [1, 1], [1, 1], [1, 1], True)
    x, other, w = torch.ones(2, 3).byte(), torch.ones(3, 2).byte(), torch.ones(3, 4)
    image, kernel = torch.ones(1, 3, 4, 4).byte(), torch.ones(4, 3, 2, 2)
    plain = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    return [
        (through(aten.view.default, [2, 3]), (x, w)),
        (through(aten._unsafe_view.default, [2, 3]), (x, w)),
        (through(aten.clone.default), (x, w)),
        (through(aten.permute.default, [1, 0]), (other, w)),
        (through(aten.t.default), (other, w)),
        (through(aten.transpose.int, 0, 1), (other, w)),
        (share(torch.mm), (x, w)),
        (share(lambda y, w: torch.addmm(w[0], y, w)), (x, w)),
        (share(lambda y, w: aten.convolution.default(y, w, None, *plain)), (image, kernel)),
        *((pooled(*settings[:count]), (image,)) for count in range(1, 6)),
        (lambda x, y: aten.cat.default([read(x), read(y)]).sin(), (x, x)),
        (lambda x, y: aten.cat.default([read(x), read(y)], 1).sin(), (x, x)),
    ]


PASS = PromoteDequantize()
