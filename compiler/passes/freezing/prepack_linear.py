"""Compute products with constant weights by oneDNN, which packs the weights once.

Rules, `linear` being `mkldnn::_linear_pointwise`:
    1. addmm(b, x, w) -> linear(x, t(w), b)        mm(x, w) -> linear(x, t(w), None)
    2. view(linear(view(x)), sizes) -> linear(x), the views only merging and splitting rows; of
       `prepack_quantized`'s too
The graph keeps the plain weight; code generation packs it (`codegen/packing.py`), so that a graph
can be stored, printed and run anywhere.
Preconditions: on a CPU with oneDNN; `w` is a constant, `b` a row; one dtype, float32 (not where the
process lets oneDNN round it), or 16 bits where the CPU computes with them; no size is known to be
0. A symbolic batch is fine. Reassociates: another kernel sums in another order.

Source: `_register_weight_pack_pass` and `_recover_linear` of
`torch/_inductor/fx_passes/mkldnn_fusion.py`. Those put a packing operator into the graph, and take
MKL's kernel for float32, which fuses nothing.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant, is_written_between
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.passes.freezing.dense_operands import dense_matrix, dense_operand
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_PRODUCTS = (aten.addmm.default, aten.mm.default)
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


class PrepackLinear(Pass):
    """Compute products with constant weights by oneDNN, which packs the weights once."""

    name = "prepack_linear"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if _is_packable(node):
                make = partial(_pack, rewriter, node)
                rewriter.replace_by(f"{node.target}(x, w) -> linear", [node], make)
        for node in rewriter.nodes():
            if (linear := _between_views(node)) is not None:
                make = partial(_widen, rewriter, linear)
                rule = "view(linear(view(x))) -> linear(x)"
                rewriter.replace_by(rule, [node, linear], make, erase=[linear])


def _is_packable(node: Node) -> bool:
    if node.target not in _PRODUCTS or node.kwargs:
        return False
    *bias, x, weight = node.args
    operands = [tensor_of(each) for each in (node, x, weight, *bias)]
    if not is_constant(weight) or is_constant(x) or not all(map(_is_fitting, operands)):
        return False
    result, row = operands[0], operands[3] if bias else None
    assert result is not None  # _is_fitting has looked
    if len({operand.dtype for operand in operands if operand is not None}) > 1:
        return False
    is_row = row is None or (row.dim() == 1 and same_sizes(row.shape, result.shape[1:]))
    return is_row and onednn.runs(result.dtype)


def _is_fitting(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.device.type != "cpu":
        return False
    return all(fake.is_symbolic(size) or size > 0 for size in tensor.shape)


def _pack(rewriter: Rewriter, node: Node) -> Node:
    *bias, x, weight = node.args
    rows = rewriter.insert(aten.t.default, (dense_matrix(rewriter, weight, node),), before=node)
    row = dense_operand(rewriter, bias[0] if bias else None, node)
    return rewriter.insert(onednn.linear(), (x, rows, row, "none", [], ""), before=node)


def _linears() -> tuple[Callable[..., object], ...]:
    """Return the products of oneDNN that take their rows in any number of dimensions."""
    if not onednn.runs_quantized():
        return (onednn.linear(),)
    return onednn.linear(), onednn.qlinear(), onednn.qlinear_dynamic()


def _between_views(node: Node) -> Node | None:
    """Rule 2: return the product between two views."""
    linear = node.args[0] if node.target in _VIEWS else None
    if not isinstance(linear, Node) or linear.target not in _linears():
        return None
    inner = linear.args[0]
    if len(linear.users) > 1 or not isinstance(inner, Node) or inner.target not in _VIEWS:
        return None
    types = [tensor_of(each) for each in (inner.args[0], inner, linear, node)]
    if any(each is None for each in types) or is_written_between(inner, linear):
        return None
    source, rows, columns, result = (each.shape for each in types if each is not None)
    if len(rows) != 2 or not source or not same_sizes(source[-1:], rows[-1:]):
        return None
    return linear if same_sizes(result, (*source[:-1], columns[-1])) else None


def _widen(rewriter: Rewriter, linear: Node) -> Node:
    inner = linear.args[0]
    assert isinstance(inner, Node)  # _between_views has looked
    operands = (inner.args[0], *linear.args[1:])
    return rewriter.insert(linear.target, operands, before=linear)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, w, b = torch.ones(2, 3), torch.ones(3, 4), torch.ones(4)
    w, b = torch.nn.Parameter(w), torch.nn.Parameter(b)
    return [
        (lambda x, w: torch.mm(x, w).sin(), (x, w)),
        (lambda x, w, b: torch.addmm(b, x, w).sin(), (x, w, b)),
    ]


PASS = PrepackLinear()
