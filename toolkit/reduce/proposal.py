"""The proposals of a step to the driver: edits to choose from, as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit

Atom = TypeVar("Atom")


@dataclass(frozen=True, slots=True)
class Monotone:
    """Edits from mild to strong: if one reproduces, the milder ones most likely do too.

    Attributes:
        make: Makes the n-th edit, from 1, when its question is asked.
        strongest_first: The strongest is likely: ask it before any other.
    """

    make: Callable[[int], Edit]
    count: int
    strongest_first: bool = False


@dataclass(frozen=True, slots=True)
class Descent:
    """A whole number to make smaller, 1 being likely: `make` takes n from 1 to `number` - 1.

    Unlike `Monotone`: true of 64 and of 8 does not imply true of 63; kernels need multiples.
    """

    make: Callable[[int], Edit]
    number: int


@dataclass(frozen=True, slots=True)
class Subset(Generic[Atom]):
    """Atoms that may be chosen in any combination, in program order; read by position."""

    make: Callable[[tuple[Atom, ...]], Edit]
    atoms: Sequence[Atom]


@dataclass(frozen=True, slots=True)
class Guesses:
    """A few edits that are worth a question each: tried one by one until one reproduces."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class GaveUp:
    """The step does not try each of its edits, so the result is not minimal; `why`: one line."""

    why: str


Proposal = Monotone | Descent | Subset[Any] | Guesses | GaveUp
Proposals = Sequence[Proposal]


def ladder_of_edits(*edits: Edit) -> Monotone:
    """Return a ladder of a few edits, from mild to strong."""
    return Monotone(lambda n: edits[n - 1], len(edits))


@dataclass(frozen=True, slots=True)
class Step:
    """One idea of the reducer.

    `propose` returns the possible edits of a case. It asks no question and is deterministic.

    Attributes:
        repeats: Propose again as long as an edit reproduces.
        is_thorough: Halve blocks of its edits. False if the atoms left when its turn comes are most
            likely needed: one by one costs half as much then.
        detail: The part of a case that the step simplifies, of a step that takes no nodes away: it
            waits until no node can go.
        is_late: Returns whether a case is so large that the step waits until no other step helps:
            most of its questions would be wasted.
    """

    name: str
    propose: Callable[[Case, Facts], Proposals]
    repeats: bool = False
    is_thorough: bool = True
    detail: str = ""
    is_late: Callable[[Case, Facts], bool] = lambda case, facts: False
