"""What a step hands to the driver: edits to choose from, as data."""

from collections.abc import Callable, Iterator, Sequence
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
    """

    make: Callable[[int], Edit]
    count: int


@dataclass(frozen=True, slots=True)
class Subset(Generic[Atom]):
    """Atoms that may be chosen in any combination.

    Attributes:
        make: Makes one edit of a tuple of atoms (an edit class).
        atoms: In program order.
    """

    make: Callable[[tuple[Atom, ...]], Edit]
    atoms: tuple[Atom, ...]


Proposal = Monotone | Subset[Any]


def listed(*edits: Edit) -> Monotone:
    """Return the proposal of a few edits, from mild to strong."""
    return Monotone(lambda n: edits[n - 1], len(edits))


def single_edits(proposal: Proposal) -> Iterator[Edit]:
    """Yield each smallest edit of a proposal: every rung, or every atom alone."""
    if isinstance(proposal, Monotone):
        yield from (proposal.make(n) for n in range(1, proposal.count + 1))
    else:
        yield from (proposal.make((atom,)) for atom in proposal.atoms)


@dataclass(frozen=True, slots=True)
class Step:
    """One idea of the reducer.

    `propose` looks at one case and says what could be done to it; it asks nothing, and the same
    case gives the same proposals.
    """

    name: str
    propose: Callable[[Case, Facts], Sequence[Proposal]]
