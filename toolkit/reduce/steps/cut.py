"""Remove units from the middle: their values become inputs, their operands results.

Costs more than a bypass and leaves more inputs and results, so it comes later.
"""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes, of_units
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to remove any combination of the inner units."""
    inner = facts.units[1:-1]
    return [Subset(of_units(RemoveNodes), inner)] if inner else []


STEP = Step("cut", propose, is_thorough=False)
