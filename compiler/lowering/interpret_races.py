"""Races: memory that several iterations of a kernel read and write.

Outer iterations are independent of each other, and so are the iterations of one sweep. So memory
that two of them touch must only be read, or only be combined with (`add`, `max`, `min`, `prod`).
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ctk.compiler.lowering.interpret_ops import Array

Kind = Literal["reads", "combines with", "writes"]
_BITS: dict[Kind, int] = {"reads": 1, "combines with": 2, "writes": 4}


@dataclass(frozen=True, slots=True)
class _Touch:
    """Places of one buffer, and by which iterations a statement touches them."""

    kind: Kind
    places: Array
    sweep: Array  # number of the iteration among all of its sweep
    outer: Array  # number of the outer iteration
    node: str


@dataclass(slots=True)
class Races:
    """The memory that a kernel has touched so far."""

    outer: int
    _all: dict[str, list[_Touch]] = field(default_factory=dict[str, list[_Touch]])
    _sweep: dict[str, list[_Touch]] = field(default_factory=dict[str, list[_Touch]])

    def touch(self, kind: Kind, buffer: str, places: Array, chosen: Array, node: str) -> None:
        """Record the elements that the chosen iterations of a statement touch, one for each."""
        iterations = np.arange(places.size).reshape(places.shape)[chosen]
        inner = places.size // self.outer
        touch = _Touch(kind, places[chosen], iterations, iterations // inner, node)
        self._sweep.setdefault(buffer, []).append(touch)
        self._all.setdefault(buffer, []).append(touch)

    def end_sweep(self) -> str | None:
        """Return the race within the sweep that ends; None if there is none."""
        touched, self._sweep = self._sweep, {}
        return _first_conflict(touched, "iterations of one sweep", by_outer=False)

    def end_kernel(self) -> str | None:
        """Return the race between outer iterations; None if there is none."""
        return _first_conflict(self._all, "outer iterations", by_outer=True)


def _first_conflict(
    touched: dict[str, list[_Touch]], between: str, *, by_outer: bool
) -> str | None:
    for buffer, touches in touched.items():
        if all(touch.kind == "reads" for touch in touches):
            continue
        place = _contested(touches, by_outer=by_outer)
        if place is not None:
            who = " and ".join(dict.fromkeys(f"{each.node} {each.kind}" for each in touches))
            return f"a race at {buffer}[{place}] between {between}: {who} it"
    return None


def _contested(touches: list[_Touch], *, by_outer: bool) -> int | None:
    places = np.concatenate([touch.places for touch in touches])
    if not places.size:
        return None
    who = np.concatenate([touch.outer if by_outer else touch.sweep for touch in touches])
    kinds = np.concatenate([np.full(t.places.size, _BITS[t.kind]) for t in touches])
    order = np.argsort(places, kind="stable")
    places, who, kinds = places[order], who[order], kinds[order]
    starts = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    several = np.minimum.reduceat(who, starts) != np.maximum.reduceat(who, starts)
    together = np.bitwise_or.reduceat(kinds, starts)
    wrong = several & (together != _BITS["reads"]) & (together != _BITS["combines with"])
    return int(places[starts[wrong][0]]) if wrong.any() else None
