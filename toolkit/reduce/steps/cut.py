"""Remove units from the middle: their values become inputs, their operands results.

Costs more than a bypass and leaves more inputs and results, so it comes later.
"""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to remove any combination of the inner units."""
    inner = facts.units[1:-1]
    return [Subset(RemoveNodes.of, inner)] if inner else []


STEP = Step("cut", propose, is_thorough=False)
