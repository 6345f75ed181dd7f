"""Compute a whole maximum from the maxima of rows, where the graph has both.

Rules; `amax`, and `amin` likewise:
    1. (amax(x, dims, k), amax(x)) -> (y := amax(x, dims, k), amax(y))
    2. (amax(x, dims, k), max(x))  -> (y := amax(x, dims, k), max(y))
Preconditions: `x` is contiguous, so that no result has other strides; some dimensions are reduced,
and not all; nothing writes to `x` between the two. `x` is then read once, and only the results of
the rows again. Reassociates: where 0.0 and -0.0 are the largest, either may be the result.

Source: `register_partial_reduction_pattern` in `torch/_inductor/fx_passes/post_grad.py`.
"""

from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.types import is_dense, tensor_of
from ctk.compiler.patterns import Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten


def _is_partial(match: Match) -> str | None:
    x, dims = tensor_of(match.node("x")), cast("Sequence[object]", match.bound["dims"])
    if x is None or not is_dense(x):
        return "the operand is not contiguous"
    rank = max(x.dim(), 1)
    reduced = {each % rank for each in dims if isinstance(each, int)}
    is_known = all(isinstance(each, int) for each in dims)
    return None if is_known and 0 < len(reduced) < rank else "it may reduce all dimensions, or none"


def _from_rows(rewriter: Rewriter, match: Match) -> tuple[Node, Node]:
    some, whole = match.outputs
    first = min(some, whole)
    rows = rewriter.insert(some.target, some.args, some.kwargs, before=first)
    return rows, rewriter.insert(whole.target, (rows,), before=first)


def _rules() -> Iterator[Rule]:
    for reduction, of_all in ((aten.amax, aten.max), (aten.amin, aten.min)):
        some = Op(reduction.default, (Var("x"), Var("dims"), Var("keepdim")))
        for whole in (Op(reduction.default, (Var("x"),)), Op(of_all.default, (Var("x"),))):
            name = f"{whole.target}(x) -> of its rows"
            yield Rule(name, (some, whole), _from_rows, _is_partial, keeps_inner=False)


RULES = RuleTable(*_rules())


class ReuseReductions(Pass):
    """Compute a whole maximum from the maxima of rows, where the graph has both."""

    name = "reuse_reductions"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        apply_rules(rewriter, RULES)


def examples() -> list[Example]:
    """Return programs that the pass changes: both reductions of a matrix."""
    x = torch.ones(64, 64)
    return [
        (lambda x: (aten.amax.default(x.sin(), [1], True), aten.max.default(x.sin())), (x,)),
    ]


PASS = ReuseReductions()
