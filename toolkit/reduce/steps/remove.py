"""Remove units and close the gaps: who read them is fed from their ancestors, in any form."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import Reconnect, of_units
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to remove any inner units (the ends are most likely needed), then any ends."""
    units = facts.units
    inner, ends = units[1:-1], (*units[:1], *units[1:][-1:])
    return [Subset(of_units(Reconnect), each) for each in (inner, ends) if each]


STEP = Step("remove", propose)
