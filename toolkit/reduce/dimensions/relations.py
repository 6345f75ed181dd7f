"""Solve the guards of operators on sizes: the free sizes (roots), and formulas for the others.

    x[s0, s1] @ w[s2, s3]      Eq(s1, s2)              s2 = s1
    .view(s4, s5, s6)          Eq(s0*s3, s4*s5*s6)     no symbol stands alone: a condition for now
                               Eq(s4, s0)              s4 = s0, and then s3 = s5*s6

`s0`, `s1`, `s5` and `s6` are roots: products follow their factors, sums their terms. Exact
equalities always hold. Equalities with a rounded quotient and inequalities are conditions to return
to if a choice without them is not valid: they often only reflect how an operator chose its kernel.

Given some wanted sizes, `assignments` chooses numbers for all: the others follow, or give way.

    wanted s0 = 1;  s3 = s0*s4 follows;  Eq(Mod(s0, s5), 0) with s5 = 12: s5 gives way to 1

A size only ever gets smaller. The result need not be valid: `validity.py` checks it.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import sympy

from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.dimensions.size_trace import Trace

Assignment = Mapping[SizePlace, int]

MOST_PAIRS = 4096
"""Most pairs of numbers to try if two sizes must give way together."""

MOST_REPAIRS = 32
"""Most sizes that give way, one after the other, for one choice."""


@dataclass(frozen=True, slots=True)
class Relations:
    """The relations between the sizes of a case.

    Attributes:
        formulas: Each dependent symbol, in terms of roots.
        roots: The free symbols, in the order of the program.
        equalities: Conditions on roots that no formula expresses; always demanded.
    """

    trace: Trace
    formulas: Mapping[Any, Any]
    roots: tuple[Any, ...]
    equalities: tuple[Any, ...]
    roundings: tuple[Any, ...]
    inequalities: tuple[Any, ...]

    def formula(self, symbol: Any) -> Any:
        """Return the formula of a symbol in terms of roots."""
        return self.formulas.get(symbol, symbol)

    def places(self, root: Any) -> Iterator[SizePlace]:
        """Yield the places whose size depends on a root, in the order of the program."""
        for place, symbol in self.trace.symbols.items():
            if root in self.formula(symbol).free_symbols:
                yield place


def resize_relations(relations: Relations, sizes: Mapping[SizePlace, int]) -> Relations:
    """Return the relations of the same graph with other sizes, which meet them."""
    symbols = relations.trace.symbols
    hints = {**relations.trace.hints, **{symbols[place]: size for place, size in sizes.items()}}
    return dataclasses.replace(relations, trace=dataclasses.replace(relations.trace, hints=hints))


def solve_relations(trace: Trace) -> Relations:
    """Return the relations that the guards of a trace imply."""
    known = trace.hints.keys()
    asked = [(q, a) for q, a in trace.asked.items() if q.free_symbols <= known]
    equal = [equality for question, answer in asked for equality in _equalities(question, answer)]
    exact = [each for each in equal if not _is_rounded(each)]
    rounded = [each for each in equal if _is_rounded(each)]
    solution = _Solution({symbol: rank for rank, symbol in enumerate(trace.hints)})
    rest = solution.add_all(exact)
    rest_rounded = solution.add_all([each for each in rounded if not _has_remainder(each)])
    remainders = [each for each in rounded if _has_remainder(each)]
    counted = [sympy.Eq(q, a) for q, a in asked if _is_number(q)]
    others = [q if bool(a) else sympy.Not(q) for q, a in asked if _is_order(q)]
    return Relations(
        trace=trace,
        formulas=solution.formulas,
        roots=tuple(s for s in trace.hints if s not in solution.formulas),
        equalities=solution.conditions(rest),
        roundings=solution.conditions([*rest_rounded, *remainders, *counted]),
        inequalities=solution.conditions(others),
    )


def _is_number(question: Any) -> bool:
    return not isinstance(question, sympy.logic.boolalg.Boolean) and not question.is_Symbol


def _is_order(question: Any) -> bool:
    return isinstance(
        question, (sympy.StrictLessThan, sympy.LessThan, sympy.StrictGreaterThan, sympy.GreaterThan)
    )


def _equalities(question: Any, answer: Any) -> Iterator[Any]:
    if isinstance(question, sympy.Ne) and not bool(answer):
        yield sympy.Eq(question.lhs, question.rhs)
    elif isinstance(question, sympy.Eq) and bool(answer):
        yield question
    elif isinstance(question, sympy.And) and bool(answer):
        for part in question.args:
            yield from _equalities(part, sympy.true)


def _is_rounded(expression: Any) -> bool:
    """Return whether an expression holds more than sums and products."""
    exact = (sympy.Add, sympy.Mul, sympy.Pow, sympy.Symbol, sympy.Integer, sympy.Eq)
    return any(not isinstance(part, exact) for part in sympy.preorder_traversal(expression))


def _has_remainder(expression: Any) -> bool:
    return any(
        "Mod" in type(part).__name__ or type(part).__name__ in ("Max", "Min")
        for part in sympy.preorder_traversal(expression)
    )


class _Solution:
    """Formulas under construction; lives only inside `solve_relations`.

    Args:
        ranks: The order of the symbols. Those of lower rank, of inputs first, stay roots.
    """

    def __init__(self, ranks: Mapping[Any, int]) -> None:
        self.ranks = ranks
        self.formulas: dict[Any, Any] = {}

    def add_all(self, equalities: Sequence[Any]) -> list[Any]:
        """Add equalities until no more becomes a formula; return the rest."""
        left = list(equalities)
        while True:
            rest = [each for each in left if not self._add(each)]
            if len(rest) == len(left):
                return rest
            left = rest

    def conditions(self, expressions: Iterable[Any]) -> tuple[Any, ...]:
        """Return the remaining conditions on roots, each once."""
        found = dict.fromkeys(self._reduced(expression) for expression in expressions)
        return tuple(each for each in found if each not in (sympy.true, sympy.false))

    def _reduced(self, expression: Any) -> Any:
        used = expression.free_symbols & self.formulas.keys()
        return expression.xreplace({s: self.formulas[s] for s in used}) if used else expression

    def _add(self, equality: Any) -> bool:
        """Make a formula of an equality; return whether it is used up."""
        equality = self._reduced(equality)
        if equality in (sympy.true, sympy.false):
            return True
        for one, other in _alone(*_sides(equality.lhs - equality.rhs), self.ranks):
            self._define(one, other)
            return True
        return equality.lhs == equality.rhs

    def _define(self, symbol: Any, formula: Any) -> None:
        for key, known in self.formulas.items():
            if symbol in known.free_symbols:
                self.formulas[key] = known.xreplace({symbol: formula})
        self.formulas[symbol] = formula


def _alone(left: Any, right: Any, ranks: Mapping[Any, int]) -> list[tuple[Any, Any]]:
    """Return the sides that are one symbol, with the other side; the latest symbol first."""
    pairs = [(left, right), (right, left)]
    fitting = [
        (one, other)
        for one, other in pairs
        if one.is_Symbol and one in ranks and one not in other.free_symbols
    ]
    return sorted(fitting, key=lambda pair: -ranks[pair[0]])


def _sides(difference: Any) -> tuple[Any, Any]:
    """Return two sides without negative terms and common factors, the difference of which is 0.

    s0*s1*s2 - s0*s3*s4  ->  s1*s2, s3*s4
    s3 - s5 + s2         ->  s2 + s3, s5
    """
    terms = list(sympy.Add.make_args(sympy.expand(difference)))
    factors = [term.as_powers_dict() for term in terms]
    common: dict[Any, Any] = {}
    for base in factors[0] if factors else ():
        if base.is_Symbol and all(base in factor for factor in factors):
            common[base] = min(factor[base] for factor in factors)
    divisor = sympy.Mul(*(base**power for base, power in common.items()))
    numbers = [term.as_coeff_Mul()[0] for term in terms]
    divisor *= sympy.gcd(numbers) if numbers else 1
    terms = [term / divisor for term in terms]
    positive = [term for term in terms if term.as_coeff_Mul()[0] > 0]
    negative = [-term for term in terms if term.as_coeff_Mul()[0] < 0]
    return sympy.Add(*positive), sympy.Add(*negative)


def assignments(relations: Relations, wanted: Mapping[Any, int]) -> Iterator[Assignment]:
    """Yield sizes for every place with the wanted ones among them, with growing demands.

    1. Only exact equalities hold.
    2. Rounded quotients hold too: divisibility, the number of parts.
    3. Literals give way to inequalities: an index stays below the size of the indexed dimension.
    """
    literals = {
        symbol for place, symbol in relations.trace.symbols.items() if place.kind == "literal"
    }
    literals -= {s for p, s in relations.trace.symbols.items() if p.kind != "literal"}
    levels = (
        (relations.equalities, set(relations.roots)),
        (relations.roundings, set(relations.roots)),
        (relations.inequalities, literals - relations.trace.fixed),
    )
    demanded: list[_Demand] = []
    seen: list[Assignment] = []
    for conditions, may_change in levels:
        demanded += [_Demand(condition, frozenset(may_change)) for condition in conditions]
        roots = _repair(relations, dict(wanted), demanded)
        found = None if roots is None else _assignment(relations, roots)
        if found is not None and found not in seen:
            seen.append(found)
            yield found


@dataclass(frozen=True, slots=True)
class _Demand:
    condition: Any
    may_change: frozenset[Any]

    def holds(self, values: Mapping[Any, Any]) -> bool:
        return _with_numbers(self.condition, values) == sympy.true


def _repair(
    relations: Relations, wanted: Mapping[Any, int], demands: Iterable[_Demand]
) -> dict[Any, Any] | None:
    """Return numbers for the roots that meet the demands; None if none were found."""
    hints = relations.trace.hints
    values = {s: sympy.Integer(wanted.get(s, hints[s])) for s in relations.roots}
    demands = list(demands)
    for _ in range(MOST_REPAIRS):
        broken = next((demand for demand in demands if not demand.holds(values)), None)
        if broken is None:
            return values
        free = [s for s in relations.roots if s in broken.condition.free_symbols]
        free = [s for s in reversed(free) if s in broken.may_change and s not in wanted]
        change = _way_out(broken, values, free)
        if change is None:
            return None
        values |= change
    return None


def _way_out(demand: _Demand, values: Mapping[Any, Any], free: list[Any]) -> dict[Any, Any] | None:
    """Return smaller numbers for one symbol, or two, that meet a demand."""
    for symbol in free:
        for value in _below(values[symbol]):
            if demand.holds({**values, symbol: value}):
                return {symbol: value}
    for index, one in enumerate(free):
        for other in free[index + 1 :]:
            if values[one] * values[other] > MOST_PAIRS:
                continue
            for pair in product(_below(values[one]), _below(values[other])):
                change = dict(zip((one, other), pair, strict=True))
                if demand.holds({**values, **change}):
                    return change
    return None


def _below(value: Any) -> Iterator[Any]:
    return (sympy.Integer(number) for number in range(int(value) - 1, -1, -1))


def _assignment(relations: Relations, roots: Mapping[Any, Any]) -> Assignment | None:
    """Return a number for each place; None if a size would grow or vanish."""
    hints, found = relations.trace.hints, dict[SizePlace, int]()
    for place, symbol in relations.trace.symbols.items():
        value = _value(relations.formula(symbol), roots)
        least = 2 if symbol in relations.trace.dynamic else place.kind != "literal"
        if value is None or not least <= value <= hints[symbol]:
            return None
        found[place] = value
    return found


def _value(formula: Any, roots: Mapping[Any, Any]) -> int | None:
    value = _with_numbers(formula, roots)
    return int(value) if value is not None and value.is_Integer else None


def _with_numbers(expression: Any, values: Mapping[Any, Any]) -> Any | None:
    """Return an expression with numbers for its symbols; None where it has no value.

    A division by zero raises `ZeroDivisionError`, or is NaN, and a comparison with NaN a
    `TypeError`.
    """
    try:
        return expression.xreplace(values)
    except (ZeroDivisionError, TypeError):
        return None
