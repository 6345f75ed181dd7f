"""What index expressions are made of: atoms, and products of them in one order.

An atom is a loop variable, a size symbol, a quotient or remainder that does not simplify, the
larger or smaller of two sizes, or a number that the kernel reads (`Indirect`). `index.py` adds and
multiplies them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ctk.compiler.lowering.ir import Value
    from ctk.compiler.sizes.index import Index


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is known when the graph is called.

    Attributes:
        name: As torch calls it: `s0`, `u3`.
        low: The least value that it may have.
    """

    name: str
    low: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable: 0 <= its value < size."""

    name: str
    size: Index

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quotient:
    """`value // divisor`, rounded down."""

    value: Index
    divisor: Index

    def __str__(self) -> str:
        return f"({self.value} // {_factor(self.divisor)})"


@dataclass(frozen=True, slots=True)
class Remainder:
    """`value % divisor`, never negative."""

    value: Index
    divisor: Index

    def __str__(self) -> str:
        return f"({self.value} % {_factor(self.divisor)})"


@dataclass(frozen=True, slots=True)
class Extreme:
    """The larger or the smaller of two sizes."""

    kind: str  # "max" or "min"
    left: Index
    right: Index

    def __str__(self) -> str:
        return f"{self.kind}({self.left}, {self.right})"


@dataclass(frozen=True, slots=True, eq=False)
class Indirect:
    """An integer that the kernel computes or reads, as a position: 0 <= value < size.

    Attributes:
        value: Of integer type.
        size: Of the dimension that it is a position of.
        serial: Of its making, by which products are sorted: the same in every compile of a graph.
    """

    value: Value
    size: Index
    serial: int = field(default_factory=itertools.count().__next__, repr=False)

    def __str__(self) -> str:
        return f"[{self.value}]"


Atom: TypeAlias = Symbol | Var | Quotient | Remainder | Extreme | Indirect
Monomial: TypeAlias = tuple[Atom, ...]


def parts_of(atom: Atom) -> tuple[Index, ...]:
    """Return the expressions that an atom is made of."""
    if isinstance(atom, (Quotient, Remainder)):
        return atom.value, atom.divisor
    return (atom.left, atom.right) if isinstance(atom, Extreme) else ()


_KINDS = {Symbol: 0, Var: 1, Quotient: 2, Remainder: 3, Extreme: 4, Indirect: 5}


def order(atom: Atom) -> tuple[int, str]:
    """Return a key by which atoms are sorted."""
    key = f"{atom.serial:020d}" if isinstance(atom, Indirect) else str(atom)
    return _KINDS[type(atom)], key


def in_order(atoms: Monomial) -> Monomial:
    """Return a product with its atoms sorted."""
    return tuple(sorted(atoms, key=order))


def without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """Return a product without some of its atoms; None if it does not have them all."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def term_text(monomial: Monomial, factor: int) -> str:
    """Return a product and its factor for people: `i0*s1*4`."""
    parts = [str(atom) for atom in monomial]
    if factor != 1 or not parts:
        parts.append(str(factor))
    return "*".join(parts)


def _factor(value: Index) -> str:
    text = str(value)
    return f"({text})" if " + " in text or "*" in text else text
