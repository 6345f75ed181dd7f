"""Let operators of the program write into their operands instead of copies of them.

Rules, with `x` in the place of `x1` from there on:
    1. `*results, x1 = auto_functionalized_v2(op, x)` -> `results = op(x)`, for a custom operator
    2. `x1 = triton_kernel_wrapper_functional(kernel, x)["x"]` -> the launch, for a kernel of Triton
An operand that must keep its value is copied first, as in the functional form: `op(clone(x))`.
Preconditions: those of `reinplace` for at least one written operand; the copied ones are dense and
begin at the start of their memory; the operator returns none of its arguments. Exact: the
functional form is a copy and the same call.

Source: `reinplace_inplaceable_ops` and `decompose_auto_functionalized` in
`torch/_inductor/fx_passes`; there all calls are taken apart, even if each copy stays.
"""

import operator
from collections.abc import Mapping, Sequence

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.types import is_dense, tensor_of
from ctk.compiler.passes.post_grad.reinplace import (
    Destination,
    find_destination,
    replace_by_destination,
)
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fx import written_operands
from ctk.compiler.torch_compat.fx.written_operands import WritingCall, Written, WrittenView

aten = torch.ops.aten


class ReinplaceOperators(Pass):
    """Let operators of the program write into their operands instead of copies of them."""

    name = "reinplace_operators"

    def run(self, rewriter: Rewriter) -> None:
        places: dict[Node, int] | None = None
        for node in rewriter.nodes():
            if not written_operands.is_functional(node.target):
                continue
            call = written_operands.read_call(node.target, node.args, node.kwargs)
            items = _items(node)
            if call is None or items is None:
                continue
            if places is None:
                places = {each: place for place, each in enumerate(rewriter.graph.nodes)}
            found = [
                find_destination(node, base, items.get(item), places)
                for base, item in zip(call.bases, call.items, strict=True)
            ]
            kept = [base for base, target in zip(call.bases, found, strict=True) if not target]
            if any(found) and all(map(_is_copied_alike, kept)):
                _write(rewriter, node, call, items, found)


def _items(node: Node) -> dict[object, Node] | None:
    """Return the items of a result that are read; None if one is read twice or in another way."""
    found: dict[object, Node] = {}
    for user in node.users:
        if user.target is not operator.getitem or user.args[1] in found:
            return None
        found[user.args[1]] = user
    return found


def _is_copied_alike(base: Node) -> bool:
    """Return whether a clone of a tensor has its strides and offset, so that views of it agree."""
    tensor = tensor_of(base)
    return tensor is not None and is_dense(tensor) and tensor.storage_offset() == 0


def _write(
    rewriter: Rewriter,
    node: Node,
    call: WritingCall,
    items: Mapping[object, Node],
    found: Sequence[Destination | None],
) -> None:
    def edit(graph: Graph) -> None:
        bases = [
            target.tensor if target else rewriter.insert(aten.clone.default, (base,), before=node)
            for base, target in zip(call.bases, found, strict=True)
        ]

        def argument(written: Written) -> object:
            if isinstance(written, WrittenView):
                base = bases[written.base]
                if written.view is None:
                    return base
                return rewriter.insert(written.view, (base, *written.arguments), before=node)
            return None if written is None else [argument(each) for each in written]

        given = {name: argument(each) for name, each in call.written.items()}
        made = rewriter.insert(call.target, (), call.arguments(given), before=node)
        for place in range(call.results):
            if place in items:
                is_one = call.results == 1
                item = (
                    made
                    if is_one
                    else rewriter.insert(operator.getitem, (made, place), before=node)
                )
                replace_by_destination(graph, items[place], Destination(item, None))
        for place, base, target in zip(call.items, bases, found, strict=True):
            if place in items:
                replace_by_destination(graph, items[place], target or Destination(base, None))
        graph.erase_node(node)

    what = "a kernel" if call.is_kernel else call.target
    rewriter.rewrite(f"{what} -> in place", [node, *items.values()], edit)


PASS = ReinplaceOperators()
