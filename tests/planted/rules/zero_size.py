"""`mean(x)` becomes `sum(x) / max(n, 1)`: the mean of nothing is NaN, not 0."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, types


def _guard(match):
    found = types(match)
    if found is None or (found[1].dim() != 0 and not isinstance(found[1].numel(), int)):
        return "no types, or symbols"
    return None if found[1].is_floating_point() else "no floating point"


def _div(rewriter, match):
    count = max(types(match)[1].numel(), 1)
    total = rewriter.insert(aten.sum.default, (match.node("x"),), before=match.root)
    return rewriter.insert(aten.div.Tensor, (total, count), before=match.root)


RULES = RuleTable(Rule("mean(x) -> sum(x) / max(n, 1)", Op(aten.mean.default, (X,)), _div, _guard))
NUMERICS = "reassociates"
CORNER = "value"
SHAPES = {(0,)}
