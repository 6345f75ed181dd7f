"""The history of error: the error of each value against float64, before and after each step.

A step may increase an error within its tolerance; a chain of such steps may exceed it. So every
value that a step changes is measured, whether or not it counts as wrong:

    step                   value   error before   after      worse by
    joint/reassociate      sum_1   0.5 ULP        12 ULP     24 times
    lowered/inductor:fwd   div     1.0 ULP        1.0 ULP    1 time

The reference is the graph before the step, run in float64. An error is the largest over the
elements: absolute, relative to the element (a typical one where it is smaller), and so in units in
the last place (ULP) of the value's dtype; "worse by" is the ratio of the root mean squares, where
the error before is eager's own.

Left out: values that are not floating point, or that change dtype or shape; steps whose graphs
cannot run; and of dispatch everything but decompositions, because tracing renames the nodes.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

import torch
from torch import Tensor

from ctk.repro_templates.numbers.errors import identical
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Checker, ValuesAround
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep, compile_steps
from ctk.toolkit.processes.link import report_alive


@dataclass(frozen=True, slots=True)
class ErrorSize:
    """Error of a value against its reference: the largest over its elements.

    Attributes:
        max_ulp: Largest error in units in the last place of the value's dtype.
    """

    max_abs: float
    max_rel: float
    max_ulp: float
    rms: float


@dataclass(frozen=True, slots=True)
class ErrorChange:
    """The change of the error of one value in one step.

    Attributes:
        step: `stage/pass`, `joint/partition`, or `lowered/codegen:name`.
        value: Name of the value: a node, `output.N` or `input.N`.
        dtype: Its dtype, without `torch.`.
        before: Its error before the step: eager's own.
    """

    step: str
    value: str
    node: str | None
    dtype: str
    before: ErrorSize
    after: ErrorSize

    @property
    def ratio(self) -> float:
        """The error after as a multiple of the error before; infinite if that was zero."""
        if self.after.rms == self.before.rms:
            return 1.0
        return self.after.rms / self.before.rms if self.before.rms else math.inf

    @property
    def growth_ulp(self) -> float:
        """How many units in the last place the step adds; negative if it removes some."""
        if self.after.max_ulp == self.before.max_ulp:
            return 0.0  # both may be infinite
        return self.after.max_ulp - self.before.max_ulp


def measure_error_history(case: Case, log: CompileLog) -> tuple[ErrorChange, ...]:
    """Return the error changes of a finished compile, worst first; the log must hold its calls."""
    measured = measure_steps(case, log, compile_steps(log))
    return sort_by_growth(change for _, changes in measured for change in changes or ())


def measure_steps(
    case: Case, log: CompileLog, steps: Iterable[CompileStep]
) -> Iterator[tuple[CompileStep, list[ErrorChange] | None]]:
    """Yield some steps of a finished compile with their error changes; None if it cannot run."""
    checker = Checker(case, log)
    for step in steps:
        report_alive()
        around = checker.around(step)
        yield step, None if around is None else [*_changes(checker, around)]


def sort_by_growth(changes: Iterable[ErrorChange]) -> tuple[ErrorChange, ...]:
    """Return error changes, the worst growth first."""
    return tuple(sorted(changes, key=lambda change: change.growth_ulp, reverse=True))


def _changes(checker: Checker, around: ValuesAround) -> Iterator[ErrorChange]:
    for name in around.names:
        before, after = around.before[name], around.after[name]
        if identical(before, after):
            continue
        exact = checker.exact(around, name)
        if not (is_measurable(before) and is_measurable(after) and is_measurable(exact)):
            continue
        if before.dtype != after.dtype or not before.shape == after.shape == exact.shape:
            continue
        sizes = (measure_error(value, exact) for value in (before, after))
        dtype = str(before.dtype).removeprefix("torch.")
        yield ErrorChange(around.step.where, name, around.node(name), dtype, *sizes)


def measure_error(value: Tensor, exact: Tensor) -> ErrorSize:
    """Return the error of a value; infinite for NaN or Inf at a finite reference.

    Args:
        exact: The reference, of the same shape and at least the same precision.
    """
    wide, truth = _real(value), _real(exact)
    counts = torch.isfinite(truth)
    errors = torch.where(counts, (wide - truth).abs(), 0.0).nan_to_num(nan=math.inf)
    if errors.numel() == 0:
        return ErrorSize(0.0, 0.0, 0.0, 0.0)
    size = _size(torch.where(counts, truth.abs(), 0.0))
    relative = torch.where(errors > 0, errors / size, 0.0)
    return ErrorSize(
        max_abs=float(errors.max()),
        max_rel=float(relative.max()),
        max_ulp=float((errors / last_place(size, value.dtype)).max()),
        rms=float(errors.square().mean().sqrt()),
    )


def _size(absolute: Tensor) -> Tensor:
    """Return the size that an error is relative to: of the element, at least the median.

    An element much smaller than its neighbours is the remainder of a cancellation and carries their
    error (repro_templates/numbers/compare.py measures in the same way).
    """
    nonzero = absolute[absolute > 0]
    return absolute.clamp(min=float(nonzero.median())) if nonzero.numel() else absolute


def last_place(size: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the distance from each number to the next larger one of a dtype.

    For float32: 2**-23 for 1.0 up to (not including) 2.0, 2**-22 for 2.0. `size` holds absolute
    values in float64.
    """
    limits = torch.finfo(dtype)
    exponent = torch.frexp(size.clamp(min=limits.tiny)).exponent - 1
    return torch.ldexp(torch.full_like(size, limits.eps), exponent)


def _real(value: Tensor) -> Tensor:
    """Return a tensor as float64 numbers on the CPU, complex ones as pairs."""
    value = value.detach().cpu()
    value = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    return value.to(torch.float64)


def is_measurable(value: object) -> TypeGuard[Tensor]:
    """Return whether a value is a dense tensor of floating or complex numbers."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return False
    return (value.is_floating_point() or value.is_complex()) and value.device.type != "meta"
