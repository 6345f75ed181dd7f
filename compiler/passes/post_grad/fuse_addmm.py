"""Fuse a matrix product with the addition behind it: `patterns/linear.py`. Reassociates."""

from compiler.passes.base import Door, Pass
from compiler.patterns.linear import RULES
from compiler.patterns.matcher import apply_rules


def _run(door: Door) -> None:
    apply_rules(door, RULES)


PASS = Pass("fuse_addmm", _run, numerics="reassociates")
