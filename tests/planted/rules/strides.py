"""`clone(t(x))` becomes `contiguous` in memory: the copy keeps the strides of its operand."""

import torch

from tests.planted.rules.common import Op, Rule, RuleTable, X, aten


def _contiguous(rewriter, match):
    t = rewriter.insert(aten.t.default, (match.node("x"),), before=match.root)
    kwargs = {"memory_format": torch.contiguous_format}
    return rewriter.insert(aten.clone.default, (t,), kwargs, before=match.root)


RULES = RuleTable(
    Rule(
        "clone(t(x)) -> clone(t(x), contiguous)",
        Op(aten.clone.default, (Op(aten.t.default, (X,)),)),
        _contiguous,
    )
)
CORNER = "stride"
