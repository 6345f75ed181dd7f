"""`div(x, y)` becomes ones where x and y are one node: 0/0, inf/inf and NaN are not 1."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, floats_only, same_layout


def _guard(match):
    return floats_only(match) or same_layout(match)


def _ones(rewriter, match):
    return rewriter.insert(aten.ones_like.default, (match.node("x"),), before=match.root)


RULES = RuleTable(Rule("x / x -> 1", Op(aten.div.Tensor, (X, X)), _ones, _guard))
CORNER = "value"
VALUES = {0, "-0.0", "nan", "inf", "-inf"}
