"""End the program earlier: remove its last units; their operands become the results."""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.proposal import Monotone, Proposal, Step


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to remove the last unit, the last two, and so on; at least one stays."""
    units = facts.units
    return [Monotone(lambda n: RemoveNodes.of(units[-n:]), len(units) - 1)] if units[1:] else []


STEP = Step("drop_suffix", propose)
