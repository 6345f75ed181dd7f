"""Forward only: a failure that shows without a backward pass needs none."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset
from ctk.toolkit.reduce.settings_edits import DefaultModes


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to run no backward pass, if one runs."""
    return [Subset(DefaultModes, ("backward",))] if case.modes.backward else []


STEP = Step("forward_only", propose)
