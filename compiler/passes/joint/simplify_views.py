"""Collapse chains of views and involutions. All exact.

Rules:
    t(t(x)) -> x                              transpose(transpose(x, a, b), a, b) -> x
    view(view(x, s), r) -> view(x, r)         neg(neg(x)) -> x
Preconditions: `x` is a tensor. Where `view`s collapse, `x` and the result are dense: elsewhere a
dimension of one element may have other strides by way of `s`. `neg` makes a new tensor, which must
be indistinguishable from `x`: it stays in the graph, has the strides of `x`, nothing writes to `x`
or to the `neg` in between, and it is not complex (torch's vectorized `neg` loses the sign of a zero
there).

Source: XLA's algebraic simplifier (reshape of reshape, transpose of transpose).
"""

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.types import is_dense, same_layout, same_sizes, tensor_of, value_of
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
X = Var("x")


def _x(_: Rewriter, match: Match) -> Node:
    return match.node("x")


def _view(rewriter: Rewriter, match: Match) -> Node:
    args = (match.node("x"), match.bound["r"])
    return rewriter.insert(aten.view.default, args, before=match.root)


def _is_tensor(match: Match) -> str | None:
    return None if isinstance(match.bound["x"], Node) else f"{match.bound['x']} is no node"


def _are_dense(match: Match) -> str | None:
    """The strides of a view with dimensions of one element tell by way of which sizes it came."""
    for node in (match.bound["x"], match.root):
        tensor = tensor_of(node)
        if tensor is None:
            return f"the type of {node} is unknown"
        if not is_dense(tensor):
            return f"{node} is not dense: its strides are {tuple(tensor.stride())}"
    return None if _gives_the_same(match) else "the view of symbolic sizes may give another type"


def _gives_the_same(match: Match) -> bool:
    """Return whether one view has the type of two: equal sizes have many expressions."""
    source, mode = tensor_of(match.bound["x"]), fake.mode_of([value_of(match.bound["x"])])
    sizes: list[Any] = [value_of(each) for each in cast("Sequence[object]", match.bound["r"])]
    if source is None or not any(map(fake.is_symbolic, [*source.shape, *sizes])):
        return True
    found = fake.run_without_guards(mode, lambda: aten.view.default(source, sizes))
    return same_layout(match.root, found)


def _may_share(match: Match) -> str | None:
    """Return whether the new tensor of `neg` is indistinguishable from the old `x`."""
    source, root = match.bound["x"], match.root
    if not isinstance(source, Node):
        return f"{source} is no node"
    if escapes(root):
        return f"{root} leaves the graph: its caller could tell it from {source}"
    mine, others = tensor_of(root), tensor_of(source)
    if mine is None or others is None:
        return f"the type of {root} or {source} is unknown"
    if mine.is_complex():
        return f"{root} is complex: vectorized, neg is 0 - x there, which makes 0.0 of -0.0"
    if not same_sizes(mine.stride(), others.stride()):
        return f"{root} has the strides {tuple(mine.stride())}, {source} {tuple(others.stride())}"
    written = mutated_bases(root.graph)
    for node in (source, *match.inner):
        if base_of(node) in written:
            return f"something writes to {base_of(node)}, which {node} shares memory with"
    return None


RULES = RuleTable(
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
        _are_dense,
    ),
    Rule("neg(neg(x)) -> x", Op(aten.neg.default, (Op(aten.neg.default, (X,)),)), _x, _may_share),
)


class SimplifyViews(Pass):
    """Collapse chains of views and involutions."""

    name = "simplify_views"

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, RULES)


PASS = SimplifyViews()
