"""Compute values that depend on constants only at compile time.

Rule: `op(constants...) -> constant`, a constant being a tensor attribute of the graph, or the
result of a factory with fixed arguments (`full`, `arange`, `scalar_tensor`...). Preconditions:
pure, not random, nothing writes to it or to a constant that it reads, one tensor result of at most
`max_nbytes` or no larger than its operands. Factories alone stay: they are cheaper than a stored
tensor. So do dequantized integers that the kernel of a product reads in place (`weight_only`).
Exact: the same operator runs on the same device.

Source: constant folding as in any compiler; Inductor's `constant_fold_uniform_value` folds uniform
values in graphs that are not frozen, this pass small values.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from torch.fx import Node

from ctk.compiler.fx.constants import Constants
from ctk.compiler.fx.properties import escapes
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.passes.freezing.weight_only import reads_in_place
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class FoldConstants(Pass):
    """Compute values that depend on constants only at compile time.

    Attributes:
        max_nbytes: Size of the largest result that is stored; a result that is no larger than its
            operands is stored in any case.
    """

    name = "fold_constants"
    max_nbytes: int = 1 << 20

    def __post_init__(self) -> None:
        if self.max_nbytes < 0:
            raise ValueError("max_nbytes is a number of bytes from 0")

    def run(self, rewriter: Rewriter) -> None:
        constants = Constants(rewriter.module)
        names = (name for n in count() if not hasattr(rewriter.module, name := f"_folded_{n}"))
        for node in rewriter.nodes():
            if _is_foldable(node, constants, self.max_nbytes):
                _fold(rewriter, node, constants, names)


def _fold(rewriter: Rewriter, node: Node, constants: Constants, names: Iterator[str]) -> None:
    def make() -> Node:
        name = next(names)
        rewriter.module.register_buffer(name, constants.value(node), persistent=False)
        with rewriter.graph.inserting_before(node):
            constant = rewriter.graph.get_attr(name)
        constant.meta.update({k: v for k, v in node.meta.items() if k in ("val", "tensor_meta")})
        return constant

    rewriter.replace_by(f"{node.target}(constants) -> constant", [node], make)


def _is_foldable(node: Node, constants: Constants, max_nbytes: int) -> bool:
    """Return whether to store a constant: small enough, and not an output, which callers write."""
    tensor = tensor_of(node)
    if not constants.is_known(node) or tensor is None or not node.all_input_nodes:
        return False
    before = sum(t.nbytes for n in node.all_input_nodes if (t := tensor_of(n)) is not None)
    if tensor.nbytes > max(max_nbytes, before) or escapes(node, by_writers=False):
        return False
    return not reads_in_place(node)


PASS = FoldConstants()
