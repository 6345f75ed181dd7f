"""`clone(x)` becomes `x`, although the copy leaves the graph or something writes."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, same_layout, x_of

RULES = RuleTable(Rule("clone(x) -> x", Op(aten.clone.default, (X,)), x_of, same_layout))
CORNER = "alias"
