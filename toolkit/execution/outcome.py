"""What a run gives: named results, or the exception."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from ctk.repro_templates.graph.running import Run

Phase = Literal["compile", "call"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What a run gave: results, or the exception.

    Attributes:
        run: What the call gave; None when it raised.
        error: The exception; it keeps its type and traceback.
        phase: Whether the exception came from compiling or from calling.
        dtype: float64 when the floats were computed in float64; None: in the program's own dtypes.
        note: Why a float64 run was not possible.
    """

    run: Run | None
    error: BaseException | None = None
    phase: Phase = "call"
    dtype: torch.dtype | None = None
    note: str = ""

    @property
    def values(self) -> Mapping[str, object]:
        """The results by name; empty when the run raised."""
        return self.run.values if self.run else {}

    @property
    def drew_random(self) -> bool:
        """Whether the call used torch's random generators."""
        return self.run is not None and self.run.drew_random
