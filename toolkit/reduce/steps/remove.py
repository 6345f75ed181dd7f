"""Remove units and close the gaps: who read them is fed from their ancestors, in any form."""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Reconnect
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to remove any inner units (the ends are most likely needed), then any ends."""
    units = facts.units
    inner, ends = units[1:-1], (*units[:1], *units[1:][-1:])
    return [Subset(Reconnect.of, each) for each in (inner, ends) if each]


STEP = Step("remove", propose)
