"""Rules on chains of views and involutions. All exact.

t(t(x)) -> x                              transpose(transpose(x, a, b), a, b) -> x
view(view(x, s), r) -> view(x, r)         neg(neg(x)) -> x
"""

from typing import cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import Argument

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.patterns.matcher import Match, Op, Rule, Var

aten = torch.ops.aten
X = Var("x")


def _x(_: Graph, match: Match) -> Node:
    return match.node("x")


def _is_tensor(match: Match) -> bool:
    return isinstance(match.bound["x"], Node)


def _may_share(match: Match) -> bool:
    """`neg` makes a new tensor, `x` is an old one: only where nobody can tell them apart."""
    if not _is_tensor(match) or escapes(match.root):
        return False
    mine, others = tensor_of(match.root), tensor_of(match.node("x"))
    if mine is None or others is None or not same_sizes(mine.stride(), others.stride()):
        return False
    return base_of(match.node("x")) not in mutated_bases(match.root.graph)


def _view(graph: Graph, match: Match) -> Node:
    sizes = cast("Argument", match.bound["r"])
    return graph.call_function(aten.view.default, (match.node("x"), sizes))


RULES = (
    Rule("t(t(x)) -> x", Op(aten.t.default, (Op(aten.t.default, (X,)),)), _x, _is_tensor),
    Rule(
        "transpose(transpose(x, a, b), a, b) -> x",
        Op(
            aten.transpose.int,
            (Op(aten.transpose.int, (X, Var("a"), Var("b"))), Var("a"), Var("b")),
        ),
        _x,
        _is_tensor,
    ),
    Rule(
        "view(view(x, s), r) -> view(x, r)",
        Op(aten.view.default, (Op(aten.view.default, (X, Var("s"))), Var("r"))),
        _view,
        _is_tensor,
    ),
    Rule("neg(neg(x)) -> x", Op(aten.neg.default, (Op(aten.neg.default, (X,)),)), _x, _may_share),
)
