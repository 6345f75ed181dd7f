"""`mul(x, 1.0)` becomes `clone(x)`: an int times a float is a float."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, types


def _is_node(match):
    found = types(match)
    return None if found and not found[0].is_complex() else "no tensor, or complex"


def _clone(rewriter, match):
    return rewriter.insert(aten.clone.default, (match.node("x"),), before=match.root)


RULES = RuleTable(Rule("mul(x, 1.0) -> clone(x)", Op(aten.mul.Tensor, (X, 1.0)), _clone, _is_node))
CORNER = "crash"
