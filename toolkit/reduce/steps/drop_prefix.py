"""Start the program later: remove its first units; their eager values become inputs."""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.proposal import Monotone, Proposal, Step


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to remove the first unit, the first two, and so on; at least one stays."""
    units = facts.units
    return [Monotone(lambda n: RemoveNodes.of(units[:n]), len(units) - 1)] if units[1:] else []


STEP = Step("drop_prefix", propose)
