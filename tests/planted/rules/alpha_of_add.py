"""`add(x, mul(y, s))` becomes `add(x, y)`: the factor is lost (as of an `alpha`)."""

from ctk.compiler.fx.types import same_layout as is_same_layout
from tests.planted.rules.common import Op, Rule, RuleTable, S, X, Y, aten, floats_only, may_replace


def _guard(match):
    is_same = is_same_layout(match.root, match.bound["y"])
    return floats_only(match) or may_replace(match) if is_same else "another type"


def _add(rewriter, match):
    return rewriter.insert(aten.add.Tensor, (match.node("x"), match.node("y")), before=match.root)


RULES = RuleTable(
    Rule(
        "add(x, mul(y, s)) -> add(x, y)",
        Op(aten.add.Tensor, (X, Op(aten.mul.Scalar, (Y, S)))),
        _add,
        _guard,
    )
)
CORNER = "value"
