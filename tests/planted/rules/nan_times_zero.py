"""`mul(x, 0)` becomes zeros: NaN, infinities and -0.0 are lost."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, floats_only


def _zeros(rewriter, match):
    zeros = rewriter.insert(aten.zeros_like.default, (match.node("x"),), before=match.root)
    return rewriter.insert(aten.copysign.Tensor, (zeros, match.node("x")), before=match.root)


RULES = RuleTable(
    Rule("mul(x, 0) -> zeros of its sign", Op(aten.mul.Tensor, (X, 0)), _zeros, floats_only)
)
CORNER = "value"
VALUES = {"nan", "inf", "-inf"}
