"""Solve the guards of operators on sizes: the free sizes (roots), and formulas for the others.

    x[s0, s1] @ w[s2, s3]      Eq(s1, s2)              s2 = s1
    .view(s4, s5, s6)          Eq(s0*s3, s4*s5*s6)     no symbol stands alone: a condition for now
                               Eq(s4, s0)              s4 = s0, and then s3 = s5*s6

`s0`, `s1`, `s5` and `s6` are roots: products follow their factors, sums their terms. Exact
equalities always hold. Equalities with a rounded quotient and inequalities are conditions to return
to if a choice without them is not valid: they often only reflect how an operator chose its kernel.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.dimensions.size_trace import Trace


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
    equal = [each for question, answer in asked for each in _equalities(question, answer)]
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
        found = dict.fromkeys(self._reduced(each) for each in expressions)
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
        if base.is_Symbol and all(base in each for each in factors):
            common[base] = min(each[base] for each in factors)
    divisor = sympy.Mul(*(base**power for base, power in common.items()))
    numbers = [term.as_coeff_Mul()[0] for term in terms]
    divisor *= sympy.gcd(numbers) if numbers else 1
    terms = [term / divisor for term in terms]
    positive = [term for term in terms if term.as_coeff_Mul()[0] > 0]
    negative = [-term for term in terms if term.as_coeff_Mul()[0] < 0]
    return sympy.Add(*positive), sympy.Add(*negative)
