"""`x + 0` becomes `x`: -0.0 + 0 is 0.0."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, may_replace, x_of

RULES = RuleTable(Rule("x + 0 -> x", Op(aten.add.Tensor, (X, 0)), x_of, may_replace))
CORNER = "value"
VALUES = {"-0.0"}
