"""Pad matrix products to sizes that suit their kernels, if that was measured to be faster.

Rules, for `mm`, `bmm` and `addmm`: `mm(a, b) -> slice(mm(pad(a), pad(b)))`. Rows of operands should
be a multiple of 16 bytes long: 8 halves, 4 floats. The sum is padded with zeros in both factors, so
only `0 * 0` is added; the added rows and columns are cut off.

Preconditions: half, bfloat16, float or double; a dimension that is not a multiple, is a number and
more than one (the divisors of symbolic ones are not known); nothing is empty. The result is copied
if its strides are observable. Reassociates: another kernel sums in another order.

The gain is measured during the compile: both forms, on operands of the same sizes, strides, dtype
and device, with the cost of padding; for products of `min_flops` or more, on the devices in
`devices` (no
CPU: its kernels take any size). Each product is measured once per process, never under
`torch.use_deterministic_algorithms`, and `decisions` replays earlier measurements: cases carry
them, so that a repro and a bisection pad the same products as the failing compile.

Source: `torch/_inductor/fx_passes/pad_mm.py` consults a model of the machine first, ignores the
cost of padding if the memory planner may avoid it, and always pads rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import escapes
from ctk.compiler.fx.restride import is_noticed
from ctk.compiler.fx.types import dense_strides, tensor_of, type_text
from ctk.compiler.partition.roles import inherit_tags
from ctk.compiler.passes.joint.products import Product, lacks, operand_of, pad, speedup
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
_OPERANDS: Mapping[object, int] = {aten.mm.default: 2, aten.bmm.default: 2, aten.addmm.default: 3}
_SCALES = "beta", "alpha"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, slots=True)
class PadMm(Pass):
    """Pad matrix products to sizes that suit their kernels, if that was measured to be faster.

    Attributes:
        enabled: `auto` pads products that measure faster, `always` all that are not multiples,
            `never` none.
        min_speedup: Minimum speed-up of a padded product.
        min_flops: Smaller products are not measured, because calling their kernels takes longer.
        devices: Device types on which to measure.
        decisions: Products to pad without a measurement, as `ctk show CASE --why-not pad_mm` names
            them; with a `-` in front, products not to pad.
    """

    name = "pad_mm"
    numerics = "reassociates"
    enabled: Literal["auto", "always", "never"] = "auto"
    min_speedup: float = 1.1
    min_flops: int = 100_000_000
    devices: tuple[str, ...] = ("cuda",)
    decisions: tuple[str, ...] = ()

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled == "never":
            return
        for node in rewriter.nodes():
            if node.target not in _OPERANDS:
                continue
            product = _product_of(node)
            if isinstance(product, Product) and self._may_pad(product):
                product = replace(product, is_copied=_is_seen(node, product))
            pads, why = (False, product) if isinstance(product, str) else self.decided(product)
            rewriter.note(f"{node}: {'padded' if pads else 'left alone'}: {why}")
            if pads and isinstance(product, Product):
                _pad(rewriter, node, product)

    def _may_pad(self, product: Product) -> bool:
        """Return whether more must be known of a product before it is decided."""
        is_measured = product.device.type in self.devices and product.flops >= self.min_flops
        return is_measured or self.enabled == "always" or bool(self.decisions)

    def decided(self, product: Product) -> tuple[bool, str]:
        """Return whether to pad a product, and why."""
        if self.enabled == "always":
            return True, "pad_mm.enabled is 'always'"
        if product.key in self.decisions or f"-{product.key}" in self.decisions:
            return product.key in self.decisions, f"{product.key} stands in pad_mm.decisions"
        if product.device.type not in self.devices:
            return False, f"{product.device.type} is not in pad_mm.devices: nothing is measured"
        if product.flops < self.min_flops:
            return False, f"{product.flops} operations are fewer than pad_mm.min_flops"
        if torch.are_deterministic_algorithms_enabled():
            return False, f"{product.key} is not measured: algorithms must be deterministic"
        gained = speedup(self.name, product, partial(padded, product))
        said = f"{product.key} is {gained:.2f} times as fast when padded"
        return gained >= self.min_speedup, f"{said}, pad_mm.min_speedup is {self.min_speedup}"


def padded(product: Product, *operands: torch.Tensor) -> torch.Tensor:
    """Compute the padded form of a product."""
    return pad(product, operands, {}, lambda target, args, kw: target(*args, **kw))


def _product_of(node: Node) -> Product | str:
    """Return a call as a product to pad, or why it needs no padding."""
    given = arguments.full_arguments(node.target, node.args, node.kwargs) or ()
    tensors = [tensor_of(each) for each in given[: _OPERANDS[node.target]]]
    result = tensor_of(node)
    known = [tensor for tensor in tensors if tensor is not None and tensor.layout is torch.strided]
    if result is None or len(known) < _OPERANDS[node.target]:
        return "a type is unknown, or not dense"
    if result.dtype not in _DTYPES or any(each.dtype != result.dtype for each in known):
        return f"the result is {type_text(result)}, or an operand is of another type"
    operands = [operand_of(each) for each in known]
    if any(operand is None for operand in operands):
        return "a size is known at run time only"
    plain = tuple(operand for operand in operands if operand is not None)
    if any(size == 0 for each in plain for size in each.shape):
        return "an operand is empty"
    product = Product(node.target, result.device, result.dtype, plain)
    first, second = known[-2:]
    sizes = (first.shape[-2], first.shape[-1], second.shape[-1])
    missing = lacks(product, [not fake.is_symbolic(size) for size in sizes])
    if not any(missing):
        return f"its sizes fit: {', '.join(map(str, sizes))}"
    return replace(product, missing=missing)


def _is_seen(node: Node, product: Product) -> bool:
    """Return whether the program can observe that the result is a part of a larger one."""
    result = tensor_of(node)
    rows, _, columns = product.missing
    if result is None or not (rows or columns):
        return False
    if escapes(node) or any(map(fake.is_symbolic, result.shape)):
        return True
    *batch, height, width = result.shape
    strides = dense_strides([*batch, height + rows, width + columns])
    return is_noticed({node: strides})


def _pad(rewriter: Rewriter, node: Node, product: Product) -> None:
    def emit(target: object, args: tuple[object, ...], options: Mapping[str, object]) -> Node:
        made = rewriter.insert(target, args, options, before=node)
        inherit_tags(made, node)
        return made

    def make() -> Node:
        count = _OPERANDS[node.target]
        given = arguments.full_arguments(node.target, node.args, node.kwargs) or ()
        options: dict[str, object] = dict(zip(_SCALES, given[count:], strict=False))
        return pad(product, given[:count], options, emit)

    name = str(node.target).split(".")[1]
    rewriter.replace_by(f"{name}(a, b) -> slice({name}(pad(a), pad(b)))", [node], make)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y, z = torch.ones(3, 5), torch.ones(5, 7), torch.ones(2, 3, 5)
    return [
        (lambda x, y: aten.mm.default(x, y), (x, y)),
        (lambda x, y: aten.mm.default(x.t(), y) * 2, (y, y)),
        (lambda x, y, b: aten.addmm.default(b, x, y.t()) * 2, (x, x, torch.ones(3))),
        (lambda b, x, y: aten.addmm.default(b, x, y, beta=2, alpha=3), (torch.ones(3, 1), x, y)),
        (lambda z, w: aten.bmm.default(z, w).view(-1) * 2, (z, torch.ones(2, 5, 3))),
    ]


PASS = PadMm()
