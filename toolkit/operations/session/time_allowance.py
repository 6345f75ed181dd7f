"""The time of a diagnosis: as long as three first compiles, unless the user sets a limit.

The first compile is measured in the operation itself: from its start (load, capture) to the first
failing answer (eager, compile, run). Of the three, the last is for the smallest case: its bisection
and its repro. The search for the fewest nodes may take longer, because nothing else makes a graph
readable.

    first compile     8 s    bisected after 11 s, 102 -> 8 call nodes after 30 s (at most 91 s)
    details           until 35 s, because 16 s are over; `left: numbers, options`

    first compile   0.5 s    counts as 5 s: details end after 10 s, the options after 15 s
"""

import time
from dataclasses import dataclass

from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.reduce.progress import Budget

COMPILES = 3
"""Length of a diagnosis, in first compiles."""

GRAPH_COMPILES = 10
"""Longest search for the fewest nodes, which starts after the bisection."""

LEAST_SECONDS = 5.0
"""A shorter first compile counts as this, and details get as much: quick targets finish."""


@document
@dataclass(frozen=True, slots=True)
class FirstCompile:
    """The time from the start of the operation to the first failing answer."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Allowance:
    """The time of one diagnosis, resumed or not.

    Attributes:
        started: Start of the operation (`time.monotonic`).
    """

    started: float
    first: FirstCompile

    @property
    def end(self) -> float:
        """When all of the time is used."""
        return self.started + COMPILES * self._compile_seconds

    def start_budget(self) -> Budget:
        """Return the budget of the searches for a smaller case, which start now."""
        return Budget(
            graph_end=time.monotonic() + GRAPH_COMPILES * self._compile_seconds,
            detail_end=self.started + (COMPILES - 1) * self._compile_seconds,
            detail_seconds=LEAST_SECONDS,
        )

    @property
    def _compile_seconds(self) -> float:
        return max(self.first.seconds, LEAST_SECONDS)
