"""Start the program later: remove its first units.

What they computed becomes inputs, with the values of an eager run.
"""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.proposal import Ladder, Proposal, Step


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to remove the first unit, the first two, and so on; at least one stays."""
    names: tuple[str, ...] = ()
    edits: list[RemoveNodes] = []
    for unit in facts.units[:-1]:
        names = (*names, *unit)
        edits.append(RemoveNodes(names))
    return [Ladder(tuple(edits))] if edits else []


STEP = Step("cut", propose)
