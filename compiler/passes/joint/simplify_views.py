"""Collapse chains of views and involutions. All exact.

Rules:
    t(t(x)) -> x                              transpose(transpose(x, a, b), a, b) -> x
    view(view(x, s), r) -> view(x, r)         neg(neg(x)) -> x
    a permute of a permute -> one permute, or x     `t` and `transpose` are permutes as well
    view(view(x, dtype), dtype) -> view(x, dtype), or x
Preconditions: `x` is a tensor. Where `view`s collapse, `x` and the result are dense: elsewhere a
dimension of one element may have other strides by way of `s`. `neg` makes a new tensor, which must
be indistinguishable from `x`: it stays in the graph, has the strides of `x`, nothing writes to `x`
or to the `neg` in between, and it is not complex (torch's vectorized `neg` loses the sign of a zero
there).

Source: XLA's algebraic simplifier (reshape of reshape, transpose of transpose).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, cast

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.types import is_dense, same_layout, same_sizes, tensor_of, value_of
from ctk.compiler.observe import first_line
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


def _order(node: Node) -> list[int]:
    """Return the dimension of the operand that each dimension of a permute is."""
    tensor = tensor_of(node)
    assert tensor is not None  # the guard has looked
    order, dims = list(range(tensor.dim())), cast("Any", node.args[1:] or (0, -1))
    if node.target is aten.permute.default:
        return [dim % len(order) for dim in dims[0]]
    if order:
        order[dims[0]], order[dims[1]] = order[dims[1]], order[dims[0]]
    return order


def _are_typed(match: Match) -> str | None:
    unknown = [node for node in match.covered if tensor_of(node) is None or node.kwargs]
    return f"the type or the dimensions of {unknown[0]} are unknown" if unknown else None


def _permute(rewriter: Rewriter, match: Match) -> Node:
    (inner,) = match.inner
    first = _order(inner)
    order = [first[dim] for dim in _order(match.root)]
    if order == sorted(order):
        return match.node("x")
    return rewriter.insert(aten.permute.default, (match.node("x"), order), before=match.root)


_PERMUTES: Mapping[Any, tuple[str, ...]] = {
    aten.permute.default: ("order",),
    aten.transpose.int: ("a", "b"),
    aten.t.default: (),
}
"""The operators that permute dimensions, with the names of their arguments."""


def _permute_rules() -> Iterator[Rule]:
    for outer, inner in product(_PERMUTES, _PERMUTES):
        if outer is inner is aten.t.default:
            continue  # a rule of its own, without types
        operand = Op(inner, (X, *map(Var, _PERMUTES[inner])))
        names = (f"outer_{name}" for name in _PERMUTES[outer])
        root = Op(outer, (operand, *map(Var, names)))
        name = "{}({}(x)) -> permute(x)".format(*(str(op).split(".")[1] for op in (outer, inner)))
        yield Rule(name, root, _permute, _are_typed)


def _same_bits(rewriter: Rewriter, match: Match) -> Node:
    x, dtype = match.node("x"), match.bound["outer_dtype"]
    if same_layout(x, match.root):
        return x
    return rewriter.insert(aten.view.dtype, (x, dtype), before=match.root)


def _is_one_view(match: Match) -> str | None:
    """Return why one view as another dtype would differ from two: its sizes do not allow it."""
    x, dtype = tensor_of(match.bound["x"]), cast("torch.dtype", match.bound["outer_dtype"])
    if x is None:
        return f"the type of {match.bound['x']} is unknown"
    try:
        mode = fake.mode_of([x])
        found = fake.run_without_guards(mode, lambda: aten.view.dtype(x, dtype))
    except RuntimeError as error:
        return first_line(error)
    return None if same_layout(match.root, found) else "one view has another layout"


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
    *_permute_rules(),
    Rule(
        "view(view(x, dtype), dtype) -> view(x, dtype)",
        Op(aten.view.dtype, (Op(aten.view.dtype, (X, Var("dtype"))), Var("outer_dtype"))),
        _same_bits,
        _is_one_view,
    ),
    Rule("neg(neg(x)) -> x", Op(aten.neg.default, (Op(aten.neg.default, (X,)),)), _x, _may_share),
)


class SimplifyViews(Pass):
    """Collapse chains of views and involutions."""

    name = "simplify_views"

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, RULES)


PASS = SimplifyViews()
