"""Rules on matrix products.

    add(mm(a, b), c) -> addmm(c, a, b)        where c is a row vector or of the product's shape
    (either order of add)

Numerics: the bias is added inside the product's accumulation, so the sum is reassociated.
"""

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.patterns.matcher import Match, Op, Rule, Var

aten = torch.ops.aten
PRODUCT = Op(aten.mm.default, (Var("a"), Var("b")))


def _is_bias(match: Match) -> bool:
    """The product has no other user, the sum has its layout, and the bias its dtype and device.

    `addmm` is dense and as large as the product. The sum is not where the bias broadcasts the
    product, nor where its first operand is a transposed bias: that one chooses the strides.
    """
    result, bias = tensor_of(match.root), tensor_of(match.bound["c"])
    product = tensor_of(match.inner[0])
    if result is None or bias is None or product is None or len(match.inner[0].users) != 1:
        return False
    same_shape = same_sizes(result.shape, product.shape)
    same_layout = same_shape and same_sizes(result.stride(), product.stride())
    same_kind = bias.device == product.device and bias.dtype == product.dtype
    is_row = bias.dim() == 1 and same_sizes(bias.shape, product.shape[-1:])
    is_full = same_sizes(bias.shape, product.shape)
    return same_layout and same_kind and result.is_floating_point() and (is_row or is_full)


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
