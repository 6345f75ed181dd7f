"""Run a graph before and after a rule, and compare all that a caller can observe.

Compared, in this order: exceptions, dtypes, shapes, strides of results, memory shared with inputs
and among results, writes to inputs, and numbers: bit for bit for a rule that is `exact` (any NaN
equals any other, -0.0 differs from 0.0), else by the bounds of `rounding.py`.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor
from torch.fx import GraphModule
from torch.fx.node import Target

from ctk.compiler.observe import first_line
from ctk.repro_templates.numbers.errors import same_numbers
from ctk.repro_templates.numbers.layout import visible_strides
from ctk.toolkit.case.case import Modes
from ctk.toolkit.execution.execute import Outcome, run_private
from ctk.toolkit.execution.private_copy import Eager
from ctk.toolkit.verify_rules.schemas import is_defined

RuleDifferenceKind = Literal[
    "crash", "exception", "dtype", "shape", "stride", "alias", "write", "value"
]

JudgeNumbers = Callable[[int, Tensor, Tensor], str | None]
"""Gets a result's number and its values before and after, whose bits differ; returns the error."""


@dataclass(frozen=True, slots=True)
class RuleDifference:
    """An observable difference between a graph and the same graph after a rule."""

    kind: RuleDifferenceKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class _CheckedEager(Eager):
    """Raises where a kernel would read past the end of an operand."""

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not is_defined(target, args):
            raise ValueError(f"{target} reads behind the end of an operand")
        return super().call_function(target, args, kwargs)


def run_drawn(graph: GraphModule, inputs: Sequence[Tensor]) -> Outcome:
    """Run a graph on private copies of its inputs and constants; an exception is an outcome."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return run_private(graph, inputs, Modes(grad=False), runner=_CheckedEager)
        except Exception as error:
            return Outcome(None, error)


def results_of(outcome: Outcome) -> list[object]:
    """Return the results of a run in order."""
    return [value for name, value in outcome.values.items() if name.startswith("out")]


def find_difference(
    before: Outcome, after: Outcome, judge_numbers: JudgeNumbers
) -> RuleDifference | None:
    """Return the first difference between two runs; `before` has not raised."""
    if after.error is not None:
        raised = f"{type(after.error).__name__}: {first_line(after.error)}"
        return RuleDifference("exception", f"only the graph after the rule raises {raised}")
    old, new = results_of(before), results_of(after)
    if len(old) != len(new):
        return RuleDifference("shape", f"{len(new)} results, not {len(old)}")
    return (
        _compare_types(old, new)
        or _compare_memory(before, after)
        or _compare_inputs(before, after)
        or _compare_numbers(old, new, judge_numbers)
    )


def _compare_types(before: Sequence[object], after: Sequence[object]) -> RuleDifference | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            if type(old) is not type(new):
                return RuleDifference("dtype", f"result {index} is {new!r}, not {old!r}")
        elif old.dtype != new.dtype:
            return RuleDifference("dtype", f"result {index} is {new.dtype}, not {old.dtype}")
        elif old.shape != new.shape:
            shapes = f"{list(new.shape)}, not {list(old.shape)}"
            return RuleDifference("shape", f"result {index} is {shapes}")
        elif visible_strides(old) != visible_strides(new):
            strides = f"{tuple(new.stride())}, not {tuple(old.stride())}"
            return RuleDifference("stride", f"result {index} has strides {strides}")
    return None


def _compare_memory(before: Outcome, after: Outcome) -> RuleDifference | None:
    assert before.run is not None and after.run is not None
    old, new = before.run.layout.shared, after.run.layout.shared
    for one, other in sorted(old ^ new):
        if other.startswith("held_"):  # a constant
            continue
        when = "only before the rule" if (one, other) in old else "only after the rule"
        return RuleDifference("alias", f"{one} shares memory with {other} {when}")
    return None


def _compare_inputs(before: Outcome, after: Outcome) -> RuleDifference | None:
    for name, old in before.values.items():
        new = after.values.get(name)
        if not name.startswith("in") or not (isinstance(old, Tensor) and isinstance(new, Tensor)):
            continue
        if not same_numbers(old, new):
            detail = f"{name} holds {shorten(new)} after, not {shorten(old)}"
            return RuleDifference("write", detail)
    return None


def _compare_numbers(
    before: Sequence[object], after: Sequence[object], judge_numbers: JudgeNumbers
) -> RuleDifference | None:
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if not isinstance(old, Tensor) or not isinstance(new, Tensor):
            if repr(old) != repr(new):
                return RuleDifference("value", f"result {index} is {new!r}, not {old!r}")
        elif not same_numbers(old, new):
            error = judge_numbers(index, old, new)
            if error is not None:
                return RuleDifference("value", f"result {index} {error}")
    return None


def refuse_other_bits(_index: int, before: Tensor, after: Tensor) -> str:
    """Return the error of results with other bits: the judgement of an `exact` rule."""
    return f"is {shorten(after)}, not {shorten(before)}"


def shorten(tensor: Tensor) -> str:
    """Return the numbers of a tensor, cut after 200 characters."""
    text = str(tensor.tolist())
    return text if len(text) <= 200 else f"{text[:200]}…"
