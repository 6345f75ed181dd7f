"""Rules on matrix products.

    add(mm(a, b), c) -> addmm(c, a, b)        where c is a row vector or of the product's shape
    (either order of add)

Numerics: the bias is added inside the product's accumulation, so the sum is reassociated.
"""

import torch
from torch.fx import Graph, Node

from compiler.passes.facts import same_sizes, tensor_of
from compiler.patterns.matcher import Match, Op, Rule, Var

aten = torch.ops.aten
PRODUCT = Op(aten.mm.default, (Var("a"), Var("b")))


def _is_bias(match: Match) -> bool:
    """The product has no other user; the bias has its dtype, device, and shape (or is a row)."""
    result, bias = tensor_of(match.root), tensor_of(match.bound["c"])
    product = tensor_of(match.inner[0])
    if result is None or bias is None or product is None or len(match.inner[0].users) != 1:
        return False
    same_kind = bias.device == result.device and bias.dtype == product.dtype
    is_row = bias.dim() == 1 and same_sizes(bias.shape, result.shape[-1:])
    return (
        same_kind
        and result.is_floating_point()
        and (is_row or same_sizes(bias.shape, result.shape))
    )


def _addmm(graph: Graph, match: Match) -> Node:
    return graph.call_function(
        aten.addmm.default, (match.node("c"), match.node("a"), match.node("b"))
    )


RULES = (
    Rule(
        "add(mm(a, b), c) -> addmm(c, a, b)",
        Op(aten.add.Tensor, (PRODUCT, Var("c"))),
        _addmm,
        _is_bias,
    ),
    Rule(
        "add(c, mm(a, b)) -> addmm(c, a, b)",
        Op(aten.add.Tensor, (Var("c"), PRODUCT)),
        _addmm,
        _is_bias,
    ),
)
