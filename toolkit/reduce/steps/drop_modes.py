"""Drop ambient modes: autocast, no-grad, inference, determinism, a default dtype, settings."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset
from ctk.toolkit.reduce.settings_edits import DefaultModes, unusual_modes


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose any combination of modes that differ from torch's defaults."""
    modes = tuple(name for name in unusual_modes(case.modes) if name != "backward")
    return [Subset(DefaultModes, modes)] if modes else []


STEP = Step("drop_modes", propose, detail="settings")
