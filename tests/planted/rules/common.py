"""What the planted rules share: variables, replacements and guards."""

import torch
from torch import Tensor

from ctk.compiler.fx.properties import base_of, escapes, mutated_bases
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var

aten = torch.ops.aten
A, B, C, S, X, Y = (Var(name) for name in "abcsxy")

__all__ = ["A", "B", "C", "Match", "Op", "Rule", "RuleTable", "S", "Tensor", "X", "Y", "aten"]


def x_of(_rewriter, match):
    return match.node("x")


def types(match):
    """Return the types of the root and of x, or None."""
    mine, others = tensor_of(match.root), tensor_of(match.bound["x"])
    return None if mine is None or others is None else (mine, others)


def told_apart(match):
    """Return why a new tensor can be told from x, as a right guard does."""
    source = match.bound["x"]
    if not isinstance(source, torch.fx.Node):
        return "no node"
    if escapes(match.root) or escapes(source):
        return "it leaves the graph"
    nodes = (match.root, source, *match.inner)
    return "written" if mutated_bases(match.root.graph) & {base_of(n) for n in nodes} else None


def same_layout(match):
    """Return why the root is not laid out, or not typed, like x."""
    found = types(match)
    if found is None:
        return "no types"
    mine, others = found
    is_same = (mine.dtype, mine.shape, mine.stride()) == (
        others.dtype,
        others.shape,
        others.stride(),
    )
    return None if is_same else "another type or layout"


def may_replace(match):
    return told_apart(match) or same_layout(match)


def floats_only(match):
    found = types(match)
    return None if found and found[0].is_floating_point() else "no floating point"
