"""What a run gives: named results, or the exception."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ctk.repro_templates.running import Run

Phase = Literal["compile", "call"]


@dataclass(frozen=True, slots=True)
class Result:
    """One named value of a run: a tensor (detached), a Python scalar, or None."""

    name: str
    value: object


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run gave: results, or the exception.

    Attributes:
        results: In the order outputs, inputs, gradients; None when the run raised.
        error: The exception; it keeps its type and traceback.
        phase: Whether the exception came from compiling or from calling.
        dtype: float64 when the floats were computed in float64; None: in the program's own dtypes.
        note: Why a float64 run was not possible.
        drew_random: Whether the call used torch's random generators.
        generators: Their states after the call.
    """

    results: tuple[Result, ...] | None
    error: BaseException | None = None
    phase: Phase = "call"
    dtype: torch.dtype | None = None
    note: str = ""
    drew_random: bool = False
    generators: tuple[Tensor, ...] = field(repr=False, default=())

    @property
    def run(self) -> Run:
        """The run, as the rule that judges it takes it; raises the exception if there is one."""
        if self.results is None:
            raise self.error or RuntimeError("the run has no results")
        return Run(self.values, self.generators, self.drew_random)

    @property
    def values(self) -> Mapping[str, object]:
        """The results by name; empty when the run raised."""
        return {result.name: result.value for result in self.results or ()}


def outcome_of(run: Run, *, dtype: torch.dtype | None = None) -> Outcome:
    """Return the outcome of a run that did not raise."""
    results = tuple(Result(name, value) for name, value in run.values.items())
    return Outcome(results, dtype=dtype, drew_random=run.drew_random, generators=run.generators)
