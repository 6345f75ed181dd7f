"""Sample a category without computing its probabilities: the Gumbel max trick.

Rule, along one dimension, where `q` is drawn by `exponential(1)`:
    1. argmax(softmax(x) / q) -> argmax(x - log(q))
Preconditions: nothing else uses the quotient; `softmax` keeps the dtype, which `q` has too, with
the same sizes. Division by the sum and the exponential are monotone, so the argument of the maximum
is the same, up to rounding: where the two largest quotients differ in the last digits, the other
category may win, with the probability of such a tie. Reassociates.

Off unless `enabled`: for a row with a NaN or +inf eager returns 0, and this the position of that
number.

Source: `torch/_inductor/fx_passes/apply_gumbel_max_trick.py`, which is on by default, matches torch
calls with `dim=-1, keepdim=True`, and does not compare sizes or dtypes.
"""

from dataclasses import dataclass

import torch
from torch.fx import Node

from ctk.compiler.fx.types import same_type, tensor_of
from ctk.compiler.passes.post_grad.parts import axis_of
from ctk.compiler.patterns import ANY, Match, Op, Rule, RuleTable, Var, apply_rules
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten
X, Q, DIM, AXIS = Var("x"), Var("q"), Var("dim"), Var("axis")


@dataclass(frozen=True, slots=True)
class SampleByGumbelMax(Pass):
    """Sample a category without computing its probabilities.

    Attributes:
        enabled: Whether to do it.
    """

    name = "sample_by_gumbel_max"
    numerics = "reassociates"
    enabled: bool = False

    def run(self, rewriter: Rewriter) -> None:
        if self.enabled:
            apply_rules(rewriter, _TABLE)


def _refusal(match: Match) -> str | None:
    """Return why the quotients are needed."""
    q, x = match.node("q"), tensor_of(match.bound["x"])
    if q.target is not aten.exponential.default or q.kwargs or q.args[1:] not in ((), (1.0,)):
        return f"{q} is not drawn by exponential(1)"
    if x is None or not same_type(x, tensor_of(q)):
        return "the noise has other sizes, or another dtype"
    axes = {axis_of(x, match.bound[name]) for name in ("dim", "axis")}
    return None if len(axes) == 1 and None not in axes else "softmax has another dimension"


def _sample(rewriter: Rewriter, match: Match) -> Node:
    call = rewriter.inserter(match.root)
    noise = call(aten.log.default, match.node("q"))
    scores = call(aten.sub.Tensor, match.node("x"), noise)
    return call(aten.argmax.default, scores, *match.root.args[1:])


_SOFTMAX = Op(aten._softmax.default, (X, DIM, False), may_stay=True)
_TABLE = RuleTable(
    Rule(
        "argmax(softmax(x) / q) -> argmax(x - log(q))",
        Op(aten.argmax.default, (Op(aten.div.Tensor, (_SOFTMAX, Q)), AXIS, ANY)),
        _sample,
        _refusal,
        keeps_inner=False,
    )
)


def examples() -> list[Example]:
    """Return programs that the pass changes when it is on."""
    x = torch.ones(3, 4)
    return [(_sampled, (x,)), (lambda x: _sampled(x.t()).neg(), (x,))]


def _sampled(x: torch.Tensor) -> torch.Tensor:
    noise = aten.exponential.default(torch.empty_like(x))
    return torch.argmax(torch.softmax(x, 1) / noise, -1)


PASS = SampleByGumbelMax()
