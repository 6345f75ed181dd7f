"""Take products apart where a GPU computes the parts faster: the bias, and a batch of one.

Rules:
    1. addmm(c, a, b) -> add(mm(a, b), c)      each user works element by element: the sum fuses
    2. bmm(a, b) -> unsqueeze(mm(squeeze(a), squeeze(b)))      of one matrix
Preconditions: 1. `beta` and `alpha` are 1, the operands have one dtype, of floats or integers, the
sum is dense. 2. the batch is known to be one. `enabled="auto"` takes graphs on a GPU only, where
it is not measured; on a CPU 1. is as fast (0.91 to 1.07 with a gelu behind) and 2. too (0.85 to
1.06 beyond small ones). Reassociates: the library adds the bias inside the product.

Source: Inductor's `unfuse_bias_add_to_pointwise` and `bmm_to_mm`, of GPUs.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch.fx import Node

from ctk.compiler.fx.types import is_dense, same_sizes, tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fx import arguments, operators

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class SplitProducts(Pass):
    """Take products apart where a GPU computes the parts faster.

    Attributes:
        enabled: `auto` takes those on a GPU, `always` every one, `never` none.
    """

    name = "split_products"
    numerics = "reassociates"
    enabled: Literal["auto", "always", "never"] = "auto"

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled == "never":
            return
        for node in rewriter.nodes():
            tensor = tensor_of(node)
            if tensor is None or (self.enabled == "auto" and tensor.device.type != "cuda"):
                continue
            if node.target is aten.addmm.default and is_read_by_element(node) and _is_sum(node):
                _unfuse(rewriter, node)
            elif node.target is aten.bmm.default and _is_one(node):
                _take_one(rewriter, node)


def is_read_by_element(node: Node) -> bool:
    """Return whether each user of a node works element by element, and there is one."""
    declared = [operators.declared_by(user.target) for user in node.users]
    return bool(declared) and all(each is not None and each.pointwise for each in declared)


def _is_sum(node: Node) -> bool:
    """Return whether an `addmm` is a sum with the same type and layout."""
    given = arguments.full_arguments(node.target, node.args, node.kwargs)
    tensors = [tensor_of(each) for each in node.args]
    result = tensor_of(node)
    if given is None or given[3:] != (1, 1) or len(node.args) != 3 or result is None:
        return False
    if result.is_complex() or result.dtype is torch.bool or not is_dense(result):
        return False
    return all(each is not None and each.dtype == result.dtype for each in tensors)


def _unfuse(rewriter: Rewriter, node: Node) -> None:
    def make() -> Node:
        call = rewriter.inserter(node)
        bias, first, second = node.args
        return call(aten.add.Tensor, call(aten.mm.default, first, second), bias)

    rewriter.replace_by("addmm(c, a, b) -> add(mm(a, b), c)", [node], make)


def _is_one(node: Node) -> bool:
    """Return whether a `bmm` is of one matrix, and a part of no other layout."""
    result = tensor_of(node)
    return result is not None and same_sizes(result.shape[:1], [1]) and is_dense(result)


def _take_one(rewriter: Rewriter, node: Node) -> None:
    def make() -> Node:
        call = rewriter.inserter(node)
        factors = (call(aten.squeeze.dim, each, 0) for each in node.args)
        return call(aten.unsqueeze.default, call(aten.mm.default, *factors), 0)

    rewriter.replace_by("bmm(a, b) -> mm(a, b)", [node], make)


def examples() -> list[Example]:
    """Return programs that the pass changes, for each rule."""
    x, y = torch.ones(4, 3), torch.ones(3, 5)
    return [
        (lambda x, y, b: aten.addmm.default(b, x, y).sin(), (x, y, torch.ones(5))),
        (lambda x, y, b: aten.addmm.default(b, x, y) * b, (x, y, torch.ones(4, 1))),
        (lambda x, y: aten.bmm.default(x, y), (torch.ones(1, 4, 3), torch.ones(1, 3, 5))),
    ]


PASS = SplitProducts()
