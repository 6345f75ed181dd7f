"""Compute equal expressions once.

Rule: `b = op(args)`, with an earlier `a = op(args)`: uses of `b` become uses of `a`. Preconditions:
pure, not random, no write between the two, nothing writes to either, and not both leave the graph
(callers may tell two outputs apart by writing to one). Exact.

Source: value numbering (Cocke 1970), of pure calls by operator and operands; no dominators, as a
graph has no branches.
"""

from collections.abc import Hashable

from torch.fx import Node

from ctk.compiler.fx.properties import (
    base_of,
    escapes,
    expression_of,
    is_mutating,
    is_pure,
    mutated_bases,
)
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter


class EliminateCommonSubexpressions(Pass):
    """Compute equal expressions once."""

    name = "eliminate_common_subexpressions"

    def run(self, rewriter: Rewriter) -> None:
        seen: dict[Hashable, Node] = {}
        written = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            if is_mutating(node):
                seen.clear()
            if node.op not in ("call_function", "get_attr") or not is_pure(node):
                continue
            earlier = seen.setdefault(expression_of(node), node)
            if earlier is node or (escapes(earlier) and escapes(node)):
                continue
            if not written.isdisjoint((base_of(earlier), base_of(node))):
                continue  # a write to one must not show in the other
            rewriter.replace(node, earlier, rule=f"second {node.target} -> first")


PASS = EliminateCommonSubexpressions()
