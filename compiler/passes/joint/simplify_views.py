"""Collapse chains of views and involutions: the rules of `patterns/views.py`. Exact."""

from ctk.compiler.patterns.matcher import apply_rules
from ctk.compiler.patterns.views import RULES
from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter


def _run(rewriter: Rewriter) -> None:
    apply_rules(rewriter, RULES)


PASS = Pass("simplify_views", _run)
