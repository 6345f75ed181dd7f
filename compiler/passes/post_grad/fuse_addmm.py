"""Fuse a matrix product with the addition behind it: `patterns/linear.py`. Reassociates."""

from ctk.compiler.patterns.linear import RULES
from ctk.compiler.patterns.matcher import apply_rules
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter


def _run(rewriter: Rewriter) -> None:
    apply_rules(rewriter, RULES)


PASS = Pass("fuse_addmm", _run, numerics="reassociates")
