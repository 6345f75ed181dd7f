"""Rules like the planted ones that are right: guards close the corner."""

from tests.planted.rules.common import (
    Op,
    Rule,
    RuleTable,
    S,
    X,
    aten,
    floats_only,
    may_replace,
    same_layout,
    types,
    x_of,
)


def _is_int(match):
    found = types(match)
    is_int = found and not found[0].is_floating_point() and not found[0].is_complex()
    return may_replace(match) if is_int else "no ints"


def _is_float_view(match):
    return floats_only(match) or same_layout(match)


def _clone(rewriter, match):
    return rewriter.insert(aten.clone.default, (match.node("x"),), before=match.root)


def _view(rewriter, match):
    return rewriter.insert(
        aten.view.default, (match.node("x"), match.bound["s"]), before=match.root
    )


NOT = aten.bitwise_not.default
RULES = RuleTable(
    Rule("clone(x) -> x", Op(aten.clone.default, (X,)), x_of, may_replace),
    Rule("ints: x + 0 -> x", Op(aten.add.Tensor, (X, 0)), x_of, _is_int),
    Rule("floats: x * 1.0 -> copy", Op(aten.mul.Tensor, (X, 1.0)), _clone, _is_float_view),
    Rule("ints: bitwise_not twice", Op(NOT, (Op(NOT, (X,)),)), x_of, _is_int),
    Rule("view(x, s) -> view(x, s)", Op(aten.view.default, (X, S)), _view),
)
