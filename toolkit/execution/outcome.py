"""The outcome of a run: named results, or the exception."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from ctk.repro_templates.graph.running import Run

Phase = Literal["compile", "call"]


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The results of a run, or its exception.

    Attributes:
        dtype: `torch.float64` for a float64 reference; None: the program's own dtypes.
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
