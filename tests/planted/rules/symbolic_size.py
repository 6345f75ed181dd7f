"""`ones_like(x)` becomes `full` of the sizes that were seen: symbols are taken for their hints."""

from ctk.compiler.torch_compat.fake import fake_tensors as fake
from tests.planted.rules.common import Op, Rule, RuleTable, X, aten, types


def _guard(match):
    found = types(match)
    return None if found and found[0].is_contiguous() else "not contiguous"


def _full(rewriter, match):
    root = types(match)[0]
    hints = [fake.symbol_and_hint(s)[1] if fake.is_symbolic(s) else s for s in root.shape]
    kwargs = {"dtype": root.dtype}
    return rewriter.insert(aten.full.default, (hints, 1), kwargs, before=match.root)


RULES = RuleTable(
    Rule("ones_like(x) -> full(hints)", Op(aten.ones_like.default, (X,)), _full, _guard)
)
CORNER = "crash"
DYNAMIC = True
