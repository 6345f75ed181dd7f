"""Erase nodes that nobody uses.

Rule: `op(args)` without users -> nothing, last node first. Preconditions: pure or random-free of
side effects; placeholders and writes stay, and so do random draws, which move the generator that
later draws use. Exact.
"""

from compiler.passes.base import Door, Pass
from compiler.passes.facts import is_pure


def _run(door: Door) -> None:
    for node in reversed(list(door.nodes())):
        if not node.users and is_pure(node):
            door.erase(node, rule=f"unused {node.target} -> nothing")


PASS = Pass("eliminate_dead_code", _run)
