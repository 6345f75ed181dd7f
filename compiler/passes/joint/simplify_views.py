"""Collapse chains of views and involutions: the rules of `patterns/views.py`. Exact."""

from compiler.passes.base import Door, Pass
from compiler.patterns.matcher import apply_rules
from compiler.patterns.views import RULES


def _run(door: Door) -> None:
    apply_rules(door, RULES)


PASS = Pass("simplify_views", _run)
