"""Values that have been printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Shown:
    """A value that has been printed.

    Attributes:
        text: A variable, or a number.
        axes: Names of the axes on which it depends.
        buffers: What was loaded for it.
    """

    text: str
    axes: frozenset[str] = frozenset()
    buffers: frozenset[str] = frozenset()


@dataclass(slots=True)
class Lines:
    """Lines of code, and what their variables hold."""

    lines: list[str] = field(default_factory=list[str])
    known: dict[object, Shown] = field(default_factory=dict[object, Shown])


def union(parts: Iterable[Shown]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the axes and the buffers of some values together."""
    each = list(parts)
    axes = frozenset[str]().union(*(part.axes for part in each))
    return axes, frozenset[str]().union(*(part.buffers for part in each))
