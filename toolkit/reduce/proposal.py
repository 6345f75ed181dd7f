"""What a step hands to the driver: edits to choose from, as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit

Atom = TypeVar("Atom")


@dataclass(frozen=True, slots=True)
class Monotone:
    """Edits from mild to strong: if one reproduces, those before it most likely do too.

    Attributes:
        make: Makes the n-th edit, from 1; an edit exists only while it is asked about.
        count: How many there are.
        strongest_first: The strongest is likely: ask for it before any other.
    """

    make: Callable[[int], Edit]
    count: int
    strongest_first: bool = False


@dataclass(frozen=True, slots=True)
class Descent:
    """A whole number to make smaller, 1 being likely.

    Unlike in `Monotone`, what is true of 64 and of 8 need not be of 63: kernels ask for multiples.

    Attributes:
        make: Makes the edit after which it is n, for n from 1 to `number` - 1.
        number: What it is.
    """

    make: Callable[[int], Edit]
    number: int


@dataclass(frozen=True, slots=True)
class Subset(Generic[Atom]):
    """Atoms that may be chosen in any combination.

    Attributes:
        make: Makes one edit of a tuple of atoms (an edit class).
        atoms: In program order; read by position, so that a `range` will do.
    """

    make: Callable[[tuple[Atom, ...]], Edit]
    atoms: Sequence[Atom]


@dataclass(frozen=True, slots=True)
class Guesses:
    """A few edits that are worth a question each: tried one by one until one reproduces.

    Other proposals reach what they reach, only more slowly: a result is minimal without them.
    """

    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class GaveUp:
    """Says that a step does not try each of its edits on this case: nobody may call it minimal.

    Not for edits that are none of the step's (`docs/minify.md` says which these are).

    Attributes:
        why: In one line, for people; the name of the step stands before it.
    """

    why: str


Proposal = Monotone | Descent | Subset[Any] | Guesses | GaveUp


def ladder_of_edits(*edits: Edit) -> Monotone:
    """Return the proposal of a few edits, from mild to strong."""
    return Monotone(lambda n: edits[n - 1], len(edits))


@dataclass(frozen=True, slots=True)
class Step:
    """One idea of the reducer.

    `propose` looks at one case and says what could be done to it; it asks nothing, and the same
    case gives the same proposals.

    Attributes:
        name: What it is called.
        propose: What it proposes for a case.
        repeats: Whether it is asked for proposals again as long as one of them reproduces.
        is_thorough: Whether blocks of its edits are worth halving. What is left when its turn comes
            is most likely needed, for a step that is not: one by one costs half as much then.
        is_late: Whether a case is so large that its turn comes only once no other step helps: most
            of what it would ask about will be gone.
    """

    name: str
    propose: Callable[[Case, Facts], Sequence[Proposal]]
    repeats: bool = False
    is_thorough: bool = True
    is_late: Callable[[Case, Facts], bool] = lambda case, facts: False
