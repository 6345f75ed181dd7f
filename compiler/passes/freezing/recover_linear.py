"""Multiply batches of rows by one constant matrix in one product, which later passes pack.

Rule: bmm(x, expand(w)) -> view(mm(view(x), w)), `x` copied first where a view is not possible.
`linear` of a transposed input of three dimensions is such a product.
Preconditions: on a CPU, `w` a constant matrix, `x` none, of floats, sizes known and not 0.
Reassociates: another kernel sums in another order.

Source: `_generate_qlinear_weight_prepack_patterns` of `torch/_inductor/fx_passes/quantization.py`
has patterns with `bmm` for quantized layers only; this pass serves floats as well.
"""

import math
from functools import partial

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant, is_written_between
from ctk.compiler.fx.types import dense_strides, same_layout, same_sizes, tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
_VIEWS = (aten.expand.default, aten.view.default)


class RecoverLinear(Pass):
    """Multiply batches of rows by one constant matrix in one product."""

    name = "recover_linear"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if (matrix := _matrix_of(node)) is not None:
                make = partial(_multiply, rewriter, node, matrix)
                rewriter.replace_by("bmm(x, expand(w)) -> view(mm(view(x), w))", [node], make)


def _matrix_of(node: Node) -> Node | None:
    """Return the matrix by which each batch of a product is multiplied."""
    if node.target is not aten.bmm.default or not is_constant(node.args[1]):
        return None
    types = [each for each in map(tensor_of, (node, *node.args)) if each is not None]
    if len(types) < 3 or types[0].device.type != "cpu" or not types[0].is_floating_point():
        return None
    sizes = [size for each in types for size in each.shape]
    if is_constant(node.args[0]) or any(fake.is_symbolic(size) or size == 0 for size in sizes):
        return None
    matrix, wanted = node.args[1], sizes[-2:]
    while isinstance(matrix, Node) and matrix.target in _VIEWS:
        if is_written_between(matrix, node):
            return None
        matrix = matrix.args[0]
        tensor = tensor_of(matrix)
        if tensor is None or not same_sizes(tensor.shape[-2:], wanted):
            return None
        if tensor.dim() == 2 and isinstance(matrix, Node):
            return matrix
    return None


def _without_noops(value: object) -> object:
    """Return the operand of views that have its sizes: they end a chain behind a dequantize."""
    while isinstance(value, Node) and value.target in _VIEWS:
        if not same_layout(value, value.args[0]):
            break
        value = value.args[0]
    return value


def _multiply(rewriter: Rewriter, node: Node, matrix: Node) -> Node:
    call, x = rewriter.inserter(before=node), _without_noops(node.args[0])
    tensor, result = tensor_of(x), tensor_of(node)
    assert tensor is not None  # _matrix_of has looked
    assert result is not None
    *rows, inputs = tensor.shape
    if list(tensor.stride()) != dense_strides(tensor.shape):
        x = call(aten.clone.default, x, memory_format=torch.contiguous_format)
    flat = call(aten.view.default, x, [math.prod(rows), inputs])
    return call(aten.view.default, call(aten.mm.default, flat, matrix), [*result.shape])


def examples() -> list[Example]:
    """Return programs that the pass changes: rows that lie as they are read, and others."""
    w = torch.nn.Parameter(torch.ones(3, 4), requires_grad=False)
    x = torch.ones(2, 5, 3)
    return [
        (lambda x, w: aten.bmm.default(x, w.expand(2, 3, 4)), (x, w)),
        (lambda x, w: aten.bmm.default(x.transpose(0, 1), w.expand(5, 3, 4)), (x, w)),
    ]


PASS = RecoverLinear()
