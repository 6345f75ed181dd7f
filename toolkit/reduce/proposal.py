"""What a step hands to the driver: edits to choose from, as data."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Edit

Atom = TypeVar("Atom")


@dataclass(frozen=True, slots=True)
class Ladder:
    """Edits from mild to strong: if one reproduces, those before it most likely do too."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True)
class Choice(Generic[Atom]):
    """Atoms that may be chosen in any combination.

    Attributes:
        make: Makes one edit of a tuple of atoms (an edit class).
        atoms: In program order.
    """

    make: Callable[[tuple[Atom, ...]], Edit]
    atoms: tuple[Atom, ...]


Proposal = Ladder | Choice[Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One idea of the reducer.

    `propose` looks at one case and says what could be done to it; it asks nothing, and the same
    case gives the same proposals.
    """

    name: str
    propose: Callable[[Case, Facts], Sequence[Proposal]]
