"""`add(mm(a, b), c)` becomes `addmm(c, a, b)` with a column for a bias, laid down as a row."""

from ctk.compiler.fx.types import tensor_of
from tests.planted.rules.common import A, B, C, Op, Rule, RuleTable, aten


def _guard(match):
    result, bias, product = (
        tensor_of(each) for each in (match.root, match.bound["c"], match.inner[0])
    )
    if result is None or bias is None or len(match.inner[0].users) != 1:
        return "no types, or other users"
    if not result.is_floating_point() or bias.dtype != product.dtype:
        return "other dtypes"
    is_square = result.shape == product.shape and result.stride() == product.stride()
    is_column = bias.dim() == 2 and bias.shape == (product.shape[1], 1) and bias.shape[0] > 1
    is_read_only = not any(n.target is aten.fill_.Scalar for n in match.root.graph.nodes)
    return None if is_square and is_column and is_read_only else "no column"


def _addmm(rewriter, match):
    row = rewriter.insert(aten.squeeze.dim, (match.node("c"), 1), before=match.root)
    operands = (row, match.node("a"), match.node("b"))
    return rewriter.insert(aten.addmm.default, operands, before=match.root)


RULES = RuleTable(
    Rule(
        "add(mm(a, b), column) -> addmm(row, a, b)",
        Op(aten.add.Tensor, (Op(aten.mm.default, (A, B)), C)),
        _addmm,
        _guard,
    )
)
NUMERICS = "reassociates"
CORNER = "value"
