"""Start the program later: remove its first units; their eager values become inputs."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes, of_units
from ctk.toolkit.reduce.proposal import Monotone, Proposals, Step


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to remove the first unit, the first two, and so on; at least one stays."""
    units, without = facts.units, of_units(RemoveNodes)
    return [Monotone(lambda n: without(units[:n]), len(units) - 1)] if units[1:] else []


STEP = Step("drop_prefix", propose)
