"""End the program earlier: remove its last units; their operands become the results."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes, of_units
from ctk.toolkit.reduce.proposal import Monotone, Proposals, Step


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to remove the last unit, the last two, and so on; at least one stays."""
    units, without = facts.units, of_units(RemoveNodes)
    return [Monotone(lambda n: without(units[-n:]), len(units) - 1)] if units[1:] else []


STEP = Step("drop_suffix", propose)
