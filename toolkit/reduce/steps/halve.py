"""Keep one half of the program, again and again: the first, the second, or the middle one."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes, of_units
from ctk.toolkit.reduce.proposal import Guesses, Proposals, Step

LEAST = 8
"""A program of fewer units is left to other steps."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to keep the first, the second, the middle half of the units."""
    units = facts.units
    count, quarter = len(units), len(units) // 4
    without = of_units(RemoveNodes)
    if count < LEAST:
        return []
    edits = (
        without(units[count // 2 :]),
        without(units[: count // 2]),
        without((*units[:quarter], *units[count - quarter :])),
    )
    return [Guesses(edits)]


STEP = Step("halve", propose, repeats=True, is_thorough=False)
