"""Compute products of many small matrices, or of a tall one with a small one, without a library.

Rules:
    1. mm(a, b) -> sum(a[:, :, None] * b[None], 1)
    2. bmm(a, b) -> sum(a[:, :, :, None] * b[:, None], 2)
    3. addmm(c, a, b) -> c + the sum of 1., where `beta` and `alpha` are 1
The library takes longer to begin such a product than to compute it; a generated kernel also fuses
with its readers. Numbers of 16 bits are multiplied and added in float32, as the library does.

Preconditions: floats of one type; the result is dense; no size is a symbol. With `enabled="auto"`
generated kernels (`eager` would store all products), and sizes that measured faster:
    CPU    float32, float64: 8 or 16 columns, dense rows, sums of 3 to 16 numbers;
           `mm` of 4096 rows or more (1.1 to 4.2 times as fast on one core), `bmm` of 64 matrices
           or more of up to 16 rows (1.2 to 9.4)
    GPU    10240 rows or matrices, both (of `bmm` two of three) other sizes below 32: not measured,
           the sizes of Inductor
One row times a matrix stays: it is as fast either way (0.95 to 1.17). Reassociates.

Source: `decompose_mem_bound_mm.py` of Inductor, off by default, which decomposes single rows on
CPUs and multiplies 16-bit numbers in 16 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node

from ctk.compiler.fx.types import HALVES, is_dense, tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default)
_DTYPES = (*HALVES, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class DecomposeProducts(Pass):
    """Compute products of many small matrices without a library.

    Attributes:
        enabled: `auto` takes products whose sizes measured faster, `always` every one, `never`
            none.
    """

    name = "decompose_products"
    numerics = "reassociates"
    enabled: Literal["auto", "always", "never"] = "auto"

    def run(self, rewriter: Rewriter) -> None:
        is_printed = rewriter.config.codegen in ("auto", "c", "triton")
        if self.enabled == "never" or (self.enabled == "auto" and not is_printed):
            return
        for node in rewriter.nodes():
            if node.target not in _PRODUCTS or not _may_decompose(node):
                continue
            if self.enabled == "always" or _is_faster(*_factors(node)):
                _decompose(rewriter, node)


def _factors(node: Node) -> Sequence[torch.Tensor]:
    tensors = (tensor_of(each) for each in node.args[-2:])
    return [each for each in tensors if each is not None]


def _may_decompose(node: Node) -> bool:
    result, factors = tensor_of(node), _factors(node)
    given = arguments.full_arguments(node.target, node.args, node.kwargs) or ()
    is_plain = node.target is not aten.addmm.default or given[3:] == (1, 1)
    count = 3 if node.target is aten.addmm.default else 2
    if result is None or len(factors) < 2 or len(node.args) != count or not is_plain:
        return False
    tensors = [result, *(each for arg in node.args if (each := tensor_of(arg)) is not None)]
    if any(each.dtype != result.dtype or each.layout is not torch.strided for each in tensors):
        return False
    sizes = [size for each in tensors for size in each.shape]
    return result.dtype in _DTYPES and is_dense(result) and not any(map(fake.is_symbolic, sizes))


def _is_faster(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return whether products of these sizes measured faster."""
    *batch, rows, inner = first.shape
    columns = second.shape[-1]
    if first.device.type == "cuda":
        small = [size < 32 for size in (*([rows] if batch else []), inner, columns)]
        return (batch or [rows])[0] >= 10240 and sum(small) >= 2
    if first.device.type != "cpu" or first.dtype in HALVES:
        return False
    if (first.stride(-1), second.stride(-1)) != (1, 1) or columns not in (8, 16):
        return False  # kernels that read no whole vectors are slower by up to ten times
    if not 3 <= inner <= 16:
        return False
    return batch[0] >= 64 and rows <= 16 if batch else rows >= 4096


def _decompose(rewriter: Rewriter, node: Node) -> None:
    def make() -> Node:
        call = rewriter.inserter(node)
        *added, first, second = node.args
        result = tensor_of(node)
        assert result is not None  # _may_decompose has looked
        is_half = result.dtype in HALVES
        if is_half:
            first = call(aten._to_copy.default, first, dtype=torch.float32)
            second = call(aten._to_copy.default, second, dtype=torch.float32)
        terms = call(
            aten.mul.Tensor,
            call(aten.unsqueeze.default, first, -1),
            call(aten.unsqueeze.default, second, -3),
        )
        total = call(aten.sum.dim_IntList, terms, [-2])
        for each in added:
            total = call(aten.add.Tensor, total, each)
        return call(aten._to_copy.default, total, dtype=result.dtype) if is_half else total

    name = str(node.target).split(".")[1]
    rewriter.replace_by(f"{name}(a, b) -> sum(a * b)", [node], make)


def examples() -> list[Example]:
    """Return programs that the pass changes, for each rule."""
    x, y = torch.ones(4, 3), torch.ones(3, 5)
    return [
        (lambda x, y: aten.mm.default(x, y), (x, y)),
        (lambda x, y: aten.mm.default(x.bfloat16(), y.bfloat16()) * 2, (x, y)),
        (lambda x, y, b: aten.addmm.default(b, x, y), (x, y, torch.ones(5))),
        (lambda x, y: aten.bmm.default(x, y).sin(), (torch.ones(2, 4, 3), torch.ones(2, 3, 5))),
    ]


PASS = DecomposeProducts()
