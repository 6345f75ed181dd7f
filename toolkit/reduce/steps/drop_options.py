"""Bring the target's config towards its default."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset
from ctk.toolkit.reduce.settings_edits import DropOptions


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to drop any combination of options; `disable` is `leave_out_passes`'."""
    names = tuple(name for name in case.config if name != "disable")
    return [Subset(DropOptions, names)] if names else []


STEP = Step("drop_options", propose, detail="settings")
