"""Compute large products on a CPU by oneDNN where that is faster than the library of `mm`.

Rule, `linear` being `mkldnn::_linear_pointwise`: mm(x, w) -> linear(x, t(w), None), and
addmm(b, x, w) -> linear(x, t(w), b), `b` a dense row.
The library of `mm` is MKL in most builds of torch, which computes with half the vectors on CPUs
of other makers. Small products pay for the longer call of oneDNN.

Preconditions: on a CPU with oneDNN, as `prepack_linear` needs it; one dtype; the factors are dense
or transposed; four rows or more; a transposed first factor, which is copied, has 64 columns of the
result or more to gain from. With `freezing` the graph of the stage `forward` is left alone, for
`prepack_linear` to pack its weights. `enabled`:
    auto    float32 products of `min_flops` or more, where one product, measured once in each
            process in 5 ms, is `min_speedup` times as fast
    tune    measures every product of `min_flops` or more, 16-bit ones too, for `budget_seconds` in
            each graph, and does as `auto` with the rest; `mode="max-autotune"` sets it
    always, never
Nothing is measured under `torch.use_deterministic_algorithms`, and `decisions` replays earlier
measurements: cases carry them. Reassociates: another kernel sums in another order.

Source: `max_autotune_gemm` of Inductor, which on a CPU measures packed constants only.
"""

import time
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import is_written_between
from ctk.compiler.fx.types import HALVES, is_dense, same_sizes, tensor_of
from ctk.compiler.passes.joint.products import (
    ROUND_SECONDS,
    Operand,
    Product,
    operand_of,
    speedup,
)
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fx import arguments
from ctk.compiler.torch_compat.inductor import onednn

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_TRANSPOSES = (aten.t.default, aten.permute.default)
_SAMPLE = Operand((128, 256), (256, 1)), Operand((256, 256), (1, 256))
_SAMPLE_SECONDS = 3e-4


@dataclass(frozen=True, slots=True)
class TuneProducts(Pass):
    """Compute large products on a CPU by oneDNN where that is faster than the library of `mm`.

    Attributes:
        enabled: `auto` measures one product for all, `tune` each, `always` takes every one, `never`
            none.
        min_speedup: Minimum speed-up of a product.
        min_flops: Smaller products stay, because the call of oneDNN takes longer.
        budget_seconds: Time to measure in for each graph, with `tune`.
        decisions: Products to compute by oneDNN without a measurement, as
            `ctk show CASE --why-not tune_products` names them; with a `-` in front, others.
    """

    name = "tune_products"
    numerics = "reassociates"
    enabled: Literal["auto", "tune", "always", "never"] = "auto"
    min_speedup: float = 1.15
    min_flops: int = 8_000_000
    budget_seconds: float = 2.0
    decisions: tuple[str, ...] = ()

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled == "never" or (rewriter.config.freezing and rewriter.stage == "forward"):
            return
        deadline = time.monotonic() + self.budget_seconds
        for node in rewriter.nodes():
            product = _product_of(node)
            if product is None:
                continue
            is_taken, why = self.decided(product, is_late=time.monotonic() > deadline)
            rewriter.note(f"{node}: {'oneDNN' if is_taken else 'left alone'}: {why}")
            if is_taken:
                name = str(node.target).split(".")[1]
                make = partial(_compute, rewriter, node)
                rewriter.replace_by(f"{name}(x, w) -> linear", [node], make)

    def decided(self, product: Product, *, is_late: bool) -> tuple[bool, str]:
        """Return whether to compute a product by oneDNN, and why."""
        if self.enabled == "always":
            return True, "tune_products.enabled is 'always'"
        if (decision := self._decision(product.key)) is not None:
            return decision
        if product.flops < self.min_flops:
            return False, f"{product.flops} operations are fewer than tune_products.min_flops"
        seconds = ROUND_SECONDS
        if self.enabled != "tune" or is_late:
            if product.dtype is not torch.float32:
                return False, f"{product.dtype} is measured with tune_products.enabled='tune' only"
            product = Product(aten.mm.default, product.device, product.dtype, _SAMPLE)
            seconds = _SAMPLE_SECONDS
        if (decision := self._decision(product.key)) is not None:
            return decision
        if torch.are_deterministic_algorithms_enabled():
            return False, f"{product.key} is not measured: algorithms must be deterministic"
        gained = speedup(self.name, product, partial(_by_onednn, product), seconds)
        said = f"{product.key} is {gained:.2f} times as fast by oneDNN"
        return (
            gained >= self.min_speedup,
            f"{said}, tune_products.min_speedup is {self.min_speedup}",
        )

    def _decision(self, key: str) -> tuple[bool, str] | None:
        """Return the decision on a product, or on the sample, that `decisions` has."""
        if key not in self.decisions and f"-{key}" not in self.decisions:
            return None
        return key in self.decisions, f"{key} stands in tune_products.decisions"


def _by_onednn(product: Product, *operands: torch.Tensor) -> torch.Tensor:
    *bias, x, weight = operands
    return onednn.linear()(x, weight.t(), bias[0] if bias else None, "none", [], "")


def _product_of(node: Node) -> Product | None:
    """Return a call that oneDNN can compute."""
    result = tensor_of(node) if node.target in _PRODUCTS else None
    if result is None or result.device.type != "cpu" or not is_dense(result):
        return None
    given = arguments.full_arguments(node.target, node.args, node.kwargs) or ()
    count = 3 if node.target is aten.addmm.default else 2
    if given[3:] not in ((), (1, 1)) or result.dtype not in (*HALVES, torch.float32):
        return None
    tensors = [tensor_of(each) for each in given[:count]]
    known = [each for each in tensors if each is not None and _is_plain(each, result.dtype)]
    operands = tuple(each for each in map(operand_of, known) if each is not None)
    if len(operands) < count or not onednn.runs(result.dtype):
        return None
    if count == 3 and not (is_dense(known[0]) and same_sizes(known[0].shape, result.shape[1:])):
        return None  # oneDNN reads the numbers of a row one after the other
    product = Product(node.target, result.device, result.dtype, operands)
    return product if _gains(product) else None


def _is_plain(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    return tensor.dtype == dtype and tensor.layout is torch.strided


def _gains(product: Product) -> bool:
    """Return whether a product has layouts and sizes that may gain."""
    rows, inner, columns = product.sizes
    first, second = product.operands[-2:]
    if rows < 4 or inner < 1 or columns < 1:
        return False
    if first.strides != (inner, 1) and not (first.strides == (1, rows) and columns >= 64):
        return False
    return second.strides in ((columns, 1), (1, inner))


def _compute(rewriter: Rewriter, node: Node) -> Node:
    *bias, x, weight = node.args
    assert isinstance(weight, Node)  # _product_of has looked
    is_turned = weight.target in _TRANSPOSES and weight.args[1:] in ((), ([1, 0],))
    if is_turned and not is_written_between(weight, node):
        turned = weight.args[0]
    else:
        turned = rewriter.insert(aten.permute.default, (weight, [1, 0]), before=node)
    row = bias[0] if bias else None
    return rewriter.insert(onednn.linear(), (x, turned, row, "none", [], ""), before=node)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, w, b = torch.ones(128, 256), torch.ones(256, 256), torch.ones(256)
    return [
        (lambda x, w: torch.mm(x, w).sin(), (x, w)),
        (lambda x, w, b: torch.addmm(b, x, w.t()).sin(), (x, w, b)),
    ]


PASS = TuneProducts()
