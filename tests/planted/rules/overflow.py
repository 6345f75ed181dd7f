"""`floor_divide(mul(x, 2), 2)` becomes `x`: the product of a large int wraps around."""

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, may_replace, types, x_of


def _guard(match):
    found = types(match)
    is_int = found and not found[0].is_floating_point() and not found[0].is_complex()
    return may_replace(match) if is_int else "no ints"


RULES = RuleTable(
    Rule(
        "(x * 2) // 2 -> x",
        Op(aten.floor_divide.default, (Op(aten.mul.Tensor, (X, 2)), 2)),
        x_of,
        _guard,
    )
)
CORNER = "value"
VALUES = {"max", "min", "inf", "-inf", "half max", 100, -90}
