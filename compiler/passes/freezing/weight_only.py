"""Multiply few rows by weights of 8-bit integers without a dequantized copy of the weights.

Rules, `w` being constant 8-bit integers [outputs, inputs]:
    1. mm(x, t(convert(w))) -> _weight_int8pack_mm(x, w, ones), and with `convert(w) * s` -> `s` for
       the ones; in bfloat16, up to `max_rows` rows
    2. mm(x, t(f(w))) -> convert(sum(convert(x)[:, None] * convert(f(w)))), up to `max_summed_rows`
       rows, `f` being conversions, zero points and scales: one generated kernel, which dequantizes
       the numbers that it reads
addmm(b, x, ...) -> add(b, the same). A scale behind the product stays there.
Preconditions: on a CPU, known sizes, none 0; `x` and the dequantized weight are float32 or 16-bit
floats; 1: `w` is int8 without gaps, and has a multiple of 16 inputs (torch's kernel crashes on
others). With more rows, or scales for groups of inputs, oneDNN's product of the dequantized
constant is faster, and takes two to four times the memory (measured: `docs/decisions.md`).
Reassociates: another kernel sums in another order, in float32.

Source: `_register_woq_mm_int8_pattern1` to `4` of `torch/_inductor/fx_passes/quantization.py` take
rule 1 for any number of rows, and only with a scale behind the product.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_constant
from ctk.compiler.fx.types import is_dense, tensor_of
from ctk.compiler.passes.freezing.dense_operands import dense_operand
from ctk.compiler.passes.freezing.quantized import CONVERSIONS, skip_transpose
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_BYTES = (torch.int8, torch.uint8)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_SINGLE = (
    *CONVERSIONS,
    *(aten.mul.Tensor, aten.sub.Tensor, aten.unsqueeze.default),
    *(aten.t.default, aten.permute.default, aten.transpose.int),
)
"""Operators that a kernel computes for each number, when it reads it."""


@dataclass(frozen=True, slots=True)
class WeightOnly(Pass):
    """Multiply few rows by weights of 8-bit integers without a dequantized copy of the weights.

    Attributes:
        max_rows: Rule 1: the most rows for torch's kernel.
        max_summed_rows: Rule 2: the most rows for a generated kernel.
    """

    name = "weight_only"
    numerics = "reassociates"
    max_rows: int = 16
    max_summed_rows: int = 4

    def run(self, rewriter: Rewriter) -> None:
        for node in rewriter.nodes():
            if not _is_product(node):
                continue
            rows = _sizes(node)[0]
            packed = _packed_operands(node) if rows <= self.max_rows else None
            if packed is not None:
                make = partial(_pack, rewriter, node, *packed)
                rewriter.replace_by(f"{node.target}(x, integers) -> kernel", [node], make)
            elif rows <= self.max_summed_rows and _is_from_bytes(node.args[-1]):
                make = partial(_sum, rewriter, node)
                rewriter.replace_by(f"{node.target}(x, integers) -> sum", [node], make)


def reads_in_place(node: Node) -> bool:
    """Return whether a constant is dequantized for rule 2, whose kernel must read the integers."""
    tensor = tensor_of(node)
    if node.target not in _SINGLE or tensor is None or not tensor.is_floating_point():
        return False
    queue = list(node.users)
    while queue:
        user = queue.pop()
        if user.target is aten.mul.Tensor and not is_constant(user):
            return all(each.target is aten.sum.dim_IntList for each in user.users) and (
                _is_from_bytes(node)
            )
        if user.target in _SINGLE:
            queue.extend(user.users)
    return False


def _sizes(node: object) -> Sequence[int]:
    tensor = tensor_of(node)
    return [] if tensor is None else [*tensor.shape]


def _is_product(node: Node) -> bool:
    if node.target not in _PRODUCTS or node.kwargs or not is_constant(node.args[-1]):
        return False
    types = [tensor_of(each) for each in (node, *node.args)]
    if any(each is None or each.device.type != "cpu" for each in types):
        return False
    shapes = [size for each in types if each is not None for size in each.shape]
    dtypes = {each.dtype for each in types if each is not None}
    if len(dtypes) > 1 or not dtypes <= {*_FLOATS} or is_constant(node.args[-2]):
        return False
    return not any(fake.is_symbolic(size) or size == 0 for size in shapes)


def _packed_operands(node: Node) -> tuple[Node, Node | None] | None:
    """Rule 1: return the integers, and their scales if the weight has them."""
    result = tensor_of(node)
    if result is None or result.dtype is not torch.bfloat16:
        return None
    found, turned = skip_transpose(node.args[-1], result.dtype)
    scale = None
    if isinstance(found, Node) and found.target is aten.mul.Tensor:
        scale = found.args[1]
        if not turned or not isinstance(scale, Node) or not _is_column(scale, _sizes(node)[1]):
            return None
        found, again = skip_transpose(found.args[0], result.dtype)
        turned ^= again
    tensor = tensor_of(found)
    if not isinstance(found, Node) or tensor is None or not turned:
        return None
    is_fine = tensor.dtype is torch.int8 and is_dense(tensor) and tensor.dim() == 2
    return (found, scale) if is_fine and tensor.shape[1] % 16 == 0 else None


def _is_column(scale: Node, outputs: int) -> bool:
    tensor = tensor_of(scale)
    return tensor is not None and tensor.dtype is torch.bfloat16 and [*tensor.shape] == [outputs, 1]


def _is_from_bytes(value: object) -> bool:
    """Return whether a constant is computed from as many 8-bit integers, number by number."""
    count, tensor = math.prod(_sizes(value)), tensor_of(value)
    queue, found = [value], False
    if tensor is None or tensor.dtype not in _FLOATS:
        return False
    while queue:
        node = queue.pop()
        part = tensor_of(node)
        if not isinstance(node, Node) or part is None:
            continue
        if part.dtype in _BYTES and part.numel() == count and node.op == "get_attr":
            found = True
        elif node.op == "call_function":
            if node.target not in _SINGLE:
                return False
            queue.extend(node.all_input_nodes)
    return found


def _pack(rewriter: Rewriter, node: Node, weight: Node, scale: Node | None) -> Node:
    call = rewriter.inserter(before=node)
    x, outputs = node.args[-2], _sizes(node)[1]
    if scale is None:
        scales = call(aten.new_full.default, weight, [outputs], 1.0, dtype=torch.bfloat16)
    else:
        scales = dense_operand(rewriter, call(aten.reshape.default, scale, [outputs]), node)
    rows = dense_operand(rewriter, x, node)
    made = call(aten._weight_int8pack_mm.default, rows, weight, scales)
    return made if len(node.args) == 2 else call(aten.add.Tensor, made, node.args[0])


def _sum(rewriter: Rewriter, node: Node) -> Node:
    call = rewriter.inserter(before=node)
    *bias, x, weight = node.args
    result = tensor_of(node)
    assert result is not None  # _is_product has looked
    wide = result.dtype is not torch.float32

    def widen(value: object) -> object:
        return call(aten._to_copy.default, value, dtype=torch.float32) if wide else value

    rows = call(aten.unsqueeze.default, widen(x), 1)
    made = call(aten.mul.Tensor, rows, widen(call(aten.t.default, weight)))
    made = call(aten.sum.dim_IntList, made, [-1])
    if bias:
        made = call(aten.add.Tensor, made, widen(bias[0]))
    return call(aten._to_copy.default, made, dtype=result.dtype) if wide else made


def examples() -> list[Example]:
    """Return programs that the pass changes: one for each rule."""
    w = torch.nn.Parameter(torch.ones(4, 16, dtype=torch.int8), requires_grad=False)
    x, b = torch.ones(2, 16), torch.ones(4)

    def half(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, w.to(torch.bfloat16).t())

    return [
        (half, (x.bfloat16(), w)),
        (lambda x, w: torch.mm(x, w.to(torch.float32).t()), (x, w)),
        (lambda x, w, b: torch.addmm(b, x, w.to(torch.float32).t()), (x, w, b)),
    ]


PASS = WeightOnly()
