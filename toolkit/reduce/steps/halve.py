"""Keep one half of the program, again and again: the first, the second, or the middle one."""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.proposal import Guesses, Proposal, Step

LEAST = 8
"""A program of fewer units is left to other steps."""


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to keep the first, the second, the middle half of the units."""
    units = facts.units
    count, quarter = len(units), len(units) // 4
    if count < LEAST:
        return []
    edits = (
        RemoveNodes.of(units[count // 2 :]),
        RemoveNodes.of(units[: count // 2]),
        RemoveNodes.of((*units[:quarter], *units[count - quarter :])),
    )
    return [Guesses(edits)]


STEP = Step("halve", propose, repeats=True, is_thorough=False)
