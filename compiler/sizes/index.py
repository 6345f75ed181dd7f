"""Index expressions: integers over loop variables and size symbols, always in one normal form.

An `Index` is a sum of products of atoms: loop variables, size symbols, quotients and remainders
that do not simplify, the larger or smaller of two sizes, integers that the kernel reads
(`Indirect`). Expressions that the rules below prove equal are equal objects, so that `==` detects
two kernels that walk memory in the same way.

    i = var("i", 4); j = var("j", 8)
    (i * 8 + j) // 8 == i          (i * 8 + j) % 8 == j         because 0 <= j < 8
    ((f // 8) * 8) + f % 8 == f

Sizes are not negative, and a loop variable `v` of size `n` has 0 <= v < n. Division rounds down.

Source: `torch/_inductor/sizevars.py` and Halide also simplify by ranges; sympy was too slow.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is known when the graph is called: torch's name (`s0`, `u3`), least value."""

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
class Division:
    """A result of a division that rounds down."""

    sign: ClassVar[str]
    value: Index
    divisor: Index

    def __str__(self) -> str:
        return f"({self.value} {self.sign} {_factor(self.divisor)})"


class Quotient(Division):
    """`value // divisor`, rounded down."""

    __slots__ = ()
    sign = "//"


class Remainder(Division):
    """`value % divisor`, never negative."""

    __slots__ = ()
    sign = "%"


DIVIDE: Mapping[str, Callable[[Any, Any], Any]] = {"//": operator.floordiv, "%": operator.mod}
"""The function of each sign: of numbers, arrays and expressions."""


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
        value: A value of the loop IR, opaque here; `ir.indirect_value` returns it with its type.
        serial: Creation number, the sort key in products: the same in every compile of a graph.
    """

    value: object
    size: Index
    serial: int = field(default_factory=itertools.count().__next__, repr=False)

    def __str__(self) -> str:
        return f"[{self.value}]"


Atom: TypeAlias = Symbol | Var | Quotient | Remainder | Extreme | Indirect
Monomial: TypeAlias = tuple[Atom, ...]


def parts_of(atom: Atom) -> tuple[Index, ...]:
    """Return the expressions inside an atom."""
    if isinstance(atom, Division):
        return atom.value, atom.divisor
    return (atom.left, atom.right) if isinstance(atom, Extreme) else ()


_KINDS = {Symbol: 0, Var: 1, Quotient: 2, Remainder: 3, Extreme: 4, Indirect: 5}


def order(atom: Atom) -> tuple[int, str]:
    """Return the sort key of an atom."""
    key = f"{atom.serial:020d}" if isinstance(atom, Indirect) else str(atom)
    return _KINDS[type(atom)], key


def in_order(atoms: Monomial) -> Monomial:
    """Return a product with its atoms sorted."""
    return tuple(sorted(atoms, key=order))


def without(monomial: Monomial, atoms: Monomial) -> Monomial | None:
    """Divide a product by some atoms; None unless it has them all."""
    left = list(monomial)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def term_text(monomial: Monomial, factor: int, text: Callable[[Atom], str] = str) -> str:
    """Return a term as text: `i0*s1*4`."""
    parts = list(map(text, monomial))
    if factor != 1 or not parts:
        parts.append(str(factor))
    return "*".join(parts)


def _factor(value: Index) -> str:
    text = str(value)
    return f"({text})" if " + " in text or "*" in text else text


def _atoms(terms: tuple[tuple[Monomial, int], ...]) -> frozenset[Atom]:
    atoms: set[Atom] = set()
    for monomial, _ in terms:
        for atom in monomial:
            atoms.add(atom)
            for inner in parts_of(atom):
                atoms |= inner.atoms
    return frozenset(atoms)


@dataclass(frozen=True, slots=True)
class Index:
    """A sum of products: `terms` has the factor of each product of atoms, never zero."""

    terms: tuple[tuple[Monomial, int], ...]
    _atoms: frozenset[Atom] = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    @property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of all terms, with those inside of atoms."""
        if not hasattr(self, "_atoms"):
            object.__setattr__(self, "_atoms", _atoms(self.terms))
        return self._atoms

    def __hash__(self) -> int:
        if not hasattr(self, "_hash"):
            object.__setattr__(self, "_hash", hash(self.terms))
        return self._hash

    def __add__(self, other: IndexLike) -> Index:
        return _sum((self, as_index(other)))

    def __mul__(self, other: IndexLike) -> Index:
        by = as_index(other)
        if by.number is not None:
            return self._scaled(by.number)
        if self.number is not None:
            return by._scaled(self.number)
        sums: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in by.terms:
                both = in_order((*left, *right))
                sums[both] = sums.get(both, 0) + a * b
        return _made(sums)

    def _scaled(self, by: int) -> Index:
        return self if by == 1 else Index(tuple([(m, f * by) for m, f in self.terms if by]))

    def __neg__(self) -> Index:
        return self._scaled(-1)

    def __sub__(self, other: IndexLike) -> Index:
        return _sum((self, as_index(other)._scaled(-1)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: IndexLike) -> Index:
        return as_index(other) - self

    def __floordiv__(self, other: IndexLike) -> Index:
        return _divided(self, as_index(other))[0]

    def __mod__(self, other: IndexLike) -> Index:
        return _divided(self, as_index(other))[1]

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        return " + ".join(term_text(monomial, factor) for monomial, factor in self.terms)

    def __repr__(self) -> str:
        return f"Index({self})"

    @property
    def number(self) -> int | None:
        """The value, if it is a plain number."""
        if len(self.terms) != 1:
            return None if self.terms else 0
        monomial, factor = self.terms[0]
        return None if monomial else factor

    def factor_of(self, var: Var) -> Index | None:
        """Return by how much the value grows with `var`; None where that is not the same always."""
        found: dict[Monomial, int] = {}
        for monomial, factor in self.terms:
            count = monomial.count(var)
            if count > 1 or any(var in inner.atoms for a in monomial for inner in parts_of(a)):
                return None
            if count:
                found[tuple(atom for atom in monomial if atom != var)] = factor
        return _made(found)

    def replace(self, change: Callable[[Atom], IndexLike | None]) -> Index:
        """Replace some atoms and simplify; None from `change` descends into the atom."""
        parts = (([_replaced(atom, change) for atom in m], factor) for m, factor in self.terms)
        return _sum([product(atoms) * factor for atoms, factor in parts])

    def substitute(self, values: Mapping[Var, IndexLike]) -> Index:
        """Return the expression with loop variables replaced."""
        if not any(atom in values for atom in self.atoms if isinstance(atom, Var)):
            return self
        return self.replace(lambda atom: values.get(atom) if isinstance(atom, Var) else None)


IndexLike: TypeAlias = Index | int

ZERO = Index(())
_remembered = lru_cache(4096)  # the layers of a model have the same expressions


def as_index(value: IndexLike) -> Index:
    """Return a whole number as an expression; a float is a TypeError."""
    if isinstance(value, Index):
        return value
    return Index((((), operator.index(value)),)) if value else ZERO


ONE = as_index(1)


def of_atom(atom: Atom) -> Index:
    """Return an atom as an expression."""
    if isinstance(atom, Var) and atom.size == ONE:
        return ZERO
    return Index((((atom,), 1),))


def var(name: str, size: IndexLike) -> Index:
    """Return a new loop variable as an expression; 0 where its size is 1."""
    return of_atom(Var(name, as_index(size)))


def symbol(name: str, low: int = 0) -> Index:
    """Return a size symbol as an expression."""
    return of_atom(Symbol(name, low))


def larger(left: IndexLike, right: IndexLike) -> Index:
    """Return the larger of two sizes."""
    return _extreme("max", as_index(left), as_index(right))


def smaller(left: IndexLike, right: IndexLike) -> Index:
    """Return the smaller of two sizes."""
    return _extreme("min", as_index(left), as_index(right))


def product(sizes: list[Index] | tuple[Index, ...]) -> Index:
    """Return the product of some sizes."""
    return math.prod(sizes, start=ONE)


@_remembered
def is_nonnegative(value: Index) -> bool:
    """Return whether an expression is known never to be negative."""
    low = _bound(value, upper=False)
    return low is not None and low >= 0


def is_less(left: IndexLike, right: IndexLike) -> bool:
    """Return whether one expression is known to be less than another, always."""
    return is_nonnegative(as_index(right) - left - 1)


def largest(value: Index) -> Index | None:
    """Return the largest value that an expression takes as its loop variables run, if known."""
    return _extent(value, upper=True)


def _sum(parts: Sequence[Index]) -> Index:
    """Return the sum of some expressions, which is made once if it has no remainders."""
    parts = [part for part in parts if part.terms]
    if len(parts) < 2:
        return parts[0] if parts else ZERO
    may_recombine = _has_remainder(monomial for part in parts for monomial, _ in part.terms)
    sums: dict[Monomial, int] = {}
    for part in parts:
        for monomial, factor in part.terms:
            sums[monomial] = sums.get(monomial, 0) + factor
        if may_recombine:  # a recombined quotient stays whole
            sums = dict(_made(sums).terms)
    return _made(sums)


def _has_remainder(monomials: Iterable[Monomial]) -> bool:
    return any(isinstance(atom, Remainder) for monomial in monomials for atom in monomial)


def _made(sums: Mapping[Monomial, int]) -> Index:
    terms = {monomial: factor for monomial, factor in sums.items() if factor}
    if len(terms) < 2:
        return Index(tuple(terms.items()))
    if _has_remainder(terms):
        terms = _recombined(terms)
    ordered = sorted(terms.items(), key=lambda term: tuple(map(order, term[0])), reverse=True)
    return Index(tuple(ordered))


def _recombined(terms: dict[Monomial, int]) -> dict[Monomial, int]:
    """Rule: `(x // d) * d + x % d -> x`, with any common factor."""
    for monomial, factor in terms.items():
        for position, atom in enumerate(monomial):
            if not isinstance(atom, Remainder):
                continue
            others = monomial[:position] + monomial[position + 1 :]
            quotient = atom.value // atom.divisor
            wanted = quotient * atom.divisor * Index(((others, factor),))
            if not wanted.terms or any(terms.get(m) != f for m, f in wanted.terms):
                continue
            left = {m: f for m, f in terms.items() if m != monomial}
            rest = _made({m: f for m, f in left.items() if (m, f) not in wanted.terms})
            return dict((rest + atom.value * Index(((others, factor),))).terms)
    return terms


@_remembered
def _divided(value: Index, divisor: Index) -> tuple[Index, Index]:
    if divisor == ONE:
        return value, ZERO
    number, by = value.number, divisor.number
    if number is not None and by:
        return as_index(number // by), as_index(number % by)
    whole, rest = _split(value, divisor)
    if not rest.terms or (is_nonnegative(rest) and is_less(rest, divisor)):
        return whole, rest
    quotient, remainder = _divided_atoms(rest, divisor)
    return whole + quotient, remainder


def _split(value: Index, divisor: Index) -> tuple[Index, Index]:
    """Return `q, r` with `value == q * divisor + r`, where `q` has the terms that divide."""
    if len(divisor.terms) != 1:
        return ZERO, value
    atoms, factor = divisor.terms[0]
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, times in value.terms:
        left = without(monomial, atoms)
        if left is not None and times % factor == 0:
            whole[left] = times // factor
        elif left is not None and not atoms and not monomial:
            whole[()], rest[()] = times // factor, times % factor
        else:
            rest[monomial] = times
    return _made(whole), _made(rest)


def _divided_atoms(value: Index, divisor: Index) -> tuple[Index, Index]:
    """Divide an expression whose terms do not divide: by a common factor, and by known divisors."""
    atom = value.terms[0][0][0] if _is_atom(value) else None
    if isinstance(atom, Remainder) and (atom.divisor % divisor) == ZERO:
        return (atom.value // divisor) % (atom.divisor // divisor), atom.value % divisor
    common = math.gcd(*(factor for index in (value, divisor) for _, factor in index.terms))
    if common > 1:
        whole, rest = _divided(_reduced(value, common), _reduced(divisor, common))
        return whole, rest * common
    remainder = of_atom(Remainder(value, divisor))
    if isinstance(atom, Quotient):
        return atom.value // (atom.divisor * divisor), remainder
    return of_atom(Quotient(value, divisor)), remainder


def _is_atom(value: Index) -> bool:
    return len(value.terms) == 1 and value.terms[0][1] == 1 and len(value.terms[0][0]) == 1


def _reduced(value: Index, by: int) -> Index:
    return Index(tuple((monomial, factor // by) for monomial, factor in value.terms))


def _extreme(kind: str, left: Index, right: Index) -> Index:
    if is_nonnegative(left - right):
        return left if kind == "max" else right
    if is_nonnegative(right - left):
        return right if kind == "max" else left
    return of_atom(Extreme(kind, left, right))


def _bound(value: Index, *, upper: bool) -> int | None:
    """Return a number that the value never goes below (or above); None if there is none."""
    extent = _extent(value, upper=upper)
    if extent is None or extent.number is not None:
        return None if extent is None else extent.number
    moved = extent.replace(
        lambda atom: (
            of_atom(Symbol(f"{atom.name}'", 0)) + atom.low
            if isinstance(atom, Symbol) and atom.low
            else None
        )
    )
    rest = [factor for monomial, factor in moved.terms if monomial]
    if any(factor < 0 if not upper else factor > 0 for factor in rest):
        return None
    return dict(moved.terms).get((), 0)


def _extent(value: Index, *, upper: bool) -> Index | None:
    """Return the extreme of a value over its loop variables, as an expression of sizes."""
    parts: list[Index] = []
    for monomial, factor in value.terms:
        high, part = upper == (factor > 0), as_index(factor)
        for atom in monomial:
            reach = _reach(atom, high=high)
            if reach is None:
                return None
            part = reach * part
        parts.append(part)
    return _sum(parts)


def _reach(atom: Atom, *, high: bool) -> Index | None:
    """Return the largest (or least) value of an atom; None if it may be negative."""
    if isinstance(atom, Symbol):
        return of_atom(atom)
    if isinstance(atom, (Var, Indirect)):
        return atom.size - 1 if high else ZERO
    if isinstance(atom, Remainder):
        if not high:
            return ZERO
        inner = _extent(atom.value, upper=True) if is_nonnegative(atom.value) else None
        limit = atom.divisor - 1
        return inner if inner is not None and is_nonnegative(limit - inner) else limit
    if isinstance(atom, Quotient):
        inner = _extent(atom.value, upper=high)
        if inner is None or any(isinstance(each, (Var, Indirect)) for each in inner.atoms):
            return None
        return inner // atom.divisor if is_nonnegative(atom.value) else None
    some = any if atom.kind == "max" else all
    return of_atom(atom) if some(map(is_nonnegative, parts_of(atom))) else None


def _replaced(atom: Atom, change: Callable[[Atom], IndexLike | None]) -> Index:
    changed = change(atom)
    if changed is not None:
        return as_index(changed)
    if isinstance(atom, Division):
        return DIVIDE[atom.sign](atom.value.replace(change), atom.divisor.replace(change))
    if isinstance(atom, Extreme):
        return _extreme(atom.kind, atom.left.replace(change), atom.right.replace(change))
    return of_atom(atom)
