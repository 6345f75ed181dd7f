"""Merge products that share an operand and have constant weights.

Rule: `mm(x, w1)`, `mm(x, w2)` -> the parts of `mm(x, cat([w1, w2], 1))`; the same with `addmm` and
rows as biases. Two or more, in the order of the graph.
Preconditions: nothing is written between them; weights and biases are constants of one dtype; no
result leaves the graph or is written to (the parts are views of one tensor, whose rows are longer),
and no user notices its strides (checked on fake tensors, so sizes must not be symbolic).
Reassociates: kernels may sum in another order for another width.

Source: `torch/_inductor/fx_passes/freezing_patterns.py` (`concat_linear`) matches fixed numbers of
linears by patterns, and ignores strides.
"""

import operator
from collections.abc import Iterator, Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.properties import escapes, is_constant, is_written_between
from ctk.compiler.fx.restride import is_noticed
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.passes.freezing.quantized import is_quantized
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten


class ConcatLinear(Pass):
    """Merge products that share an operand and have constant weights."""

    name = "concat_linear"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        for group in _groups(list(rewriter.nodes())):
            _concat(rewriter, group)


def _groups(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Yield products that may become one, in the order of the graph."""
    found: dict[object, list[Node]] = {}
    for node in nodes:
        key = _key(node)
        if key is not None:
            found.setdefault(key, []).append(node)
    for alike in found.values():
        width = sum(map(_width, alike))
        group = [node for node in alike if not _is_told_apart([node], width)]
        if len(group) > 1 and not _is_told_apart(group, sum(map(_width, group))):
            yield group


def _key(node: Node) -> object | None:
    """Return the key that products to merge share; None for another node."""
    if node.target not in (aten.mm.default, aten.addmm.default) or node.kwargs:
        return None
    *bias, x, weight = node.args
    result, row = tensor_of(node), tensor_of(bias[0]) if bias else None
    if result is None or not all(map(is_constant, (*bias, weight))) or is_constant(x):
        return None
    if is_quantized(weight):
        return None
    if bias and (row is None or row.dim() != 1 or row.shape[0] != result.shape[1]):
        return None
    return node.target, x, result.dtype


def _is_told_apart(group: Sequence[Node], width: int) -> bool:
    """Return whether a user notices that results are views of one tensor with rows of a width."""
    if is_written_between(group[0], group[-1]) or any(map(escapes, group)):
        return True
    return is_noticed(dict.fromkeys(group, (width, 1)))


def _width(node: Node) -> int:
    result = tensor_of(node)
    return 0 if result is None else result.shape[1]


def _concat(rewriter: Rewriter, group: Sequence[Node]) -> None:
    first = group[0]

    def hoist(node: Node) -> Node:
        """Return a constant, computed in front of the first product."""
        if node.op == "get_attr":
            with rewriter.graph.inserting_before(first):
                copied = rewriter.graph.get_attr(str(node.target))
            copied.meta.update(node.meta)
            return copied
        args, kwargs = map_arg(node.args, hoist), map_arg(node.kwargs, hoist)  # type: ignore[arg-type]  # map_arg takes any value
        return rewriter.insert(node.target, args, kwargs, before=first)

    def joined(at: int, axis: int) -> Node:
        parts = [hoist(node.args[at]) for node in group]  # type: ignore[arg-type]  # weights and biases are nodes
        return rewriter.insert(aten.cat.default, (parts, axis), before=first)

    def edit(graph: Graph) -> None:
        *bias, x, _ = first.args
        operands = (*([joined(0, 0)] if bias else []), x, joined(-1, 1))
        insert = rewriter.inserter(before=first)
        whole = insert(first.target, *operands)
        parts = insert(aten.split_with_sizes.default, whole, [_width(node) for node in group], 1)
        for index, node in enumerate(group):
            node.replace_all_uses_with(insert(operator.getitem, parts, index))
        for node in group:
            graph.erase_node(node)

    rewriter.rewrite(f"{len(group)} {first.target}(x, w) -> split({first.target})", group, edit)


def examples() -> list[Example]:
    """Return programs that the pass changes."""

    def constant(*shape: int) -> torch.Tensor:
        return torch.nn.Parameter(torch.ones(shape))

    x, w, v, b = torch.ones(2, 3), constant(3, 4), constant(3, 2), constant(4)
    return [
        (lambda x, w, v: (torch.mm(x, w).sin(), torch.mm(x, v).sin()), (x, w, v)),
        (lambda x, w, b: torch.addmm(b, x, w).sin() * torch.addmm(b, x, w * 2).cos(), (x, w, b)),
        (lambda x, w: torch.mm(x, w).sin() + torch.mm(x, w).t().cos().t() + torch.mm(x, w), (x, w)),
    ]


PASS = ConcatLinear()
