"""Erase nodes without users.

Rule: `op(args)` without users -> nothing, last node first. Preconditions: pure or random-free of
side effects; placeholders and writes stay, and so do random draws, which move the generator that
later draws use. Exact.

Source: FX's own elimination; this pass is numbered, and keeps random draws.
"""

from ctk.compiler.fx.properties import is_pure
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter


class EliminateDeadCode(Pass):
    """Erase nodes without users."""

    name = "eliminate_dead_code"

    def run(self, rewriter: Rewriter) -> None:
        for node in reversed(list(rewriter.nodes())):
            if not node.users and is_pure(node):
                rewriter.erase(node, rule=f"unused {node.target} -> nothing")


PASS = EliminateDeadCode()
