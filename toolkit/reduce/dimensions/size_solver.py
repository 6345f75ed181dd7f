"""Choose numbers for all sizes of a case, given some wanted ones: the others follow, or give way.

    wanted s0 = 1;  s3 = s0*s4 follows;  Eq(Mod(s0, s5), 0) with s5 = 12: s5 gives way to 1

A size only ever gets smaller. The result need not be valid: `validity.py` checks it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import sympy

from ctk.toolkit.reduce.dimensions.relations import Relations
from ctk.toolkit.reduce.dimensions.size_places import SizePlace

Assignment = Mapping[SizePlace, int]

MOST_PAIRS = 4096
"""Most pairs of numbers to try if two sizes must give way together."""

MOST_REPAIRS = 32
"""Most sizes that give way, one after the other, for one choice."""


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
        demanded += [_Demand(each, frozenset(may_change)) for each in conditions]
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
        try:
            return self.condition.xreplace(values) == sympy.true
        except ZeroDivisionError:
            return False


def _repair(
    relations: Relations, wanted: Mapping[Any, int], demands: Iterable[_Demand]
) -> dict[Any, Any] | None:
    """Return numbers for the roots that meet the demands; None if none were found."""
    hints = relations.trace.hints
    values = {s: sympy.Integer(wanted.get(s, hints[s])) for s in relations.roots}
    demands = list(demands)
    for _ in range(MOST_REPAIRS):
        broken = next((each for each in demands if not each.holds(values)), None)
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
    try:
        value = formula.xreplace(roots)
    except ZeroDivisionError:
        return None
    return int(value) if value.is_Integer else None
