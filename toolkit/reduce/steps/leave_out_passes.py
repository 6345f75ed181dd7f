"""Leave passes of the compile out, until only those run that the failure needs."""

from collections.abc import Collection

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Guesses, Proposals, Step, Subset
from ctk.toolkit.reduce.settings_edits import LeaveOutPasses
from ctk.toolkit.targets import target_of


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to leave out any combination of the passes that run."""
    running = tuple(target_of(case.target).passes(case.config))
    return [Subset(LeaveOutPasses, running)] if running else []


def only_these(guilty: Collection[str]) -> Step:
    """Return a step that leaves out all passes but the suspected ones."""

    def propose(case: Case, facts: Facts) -> Proposals:
        running = target_of(case.target).passes(case.config)
        others = tuple(name for name in running if name not in guilty)
        is_apt = len(running) > len(others) > 0
        return [Guesses((LeaveOutPasses(others),))] if is_apt else []

    return Step("guilty_passes", propose)


STEP = Step("leave_out_passes", propose, detail="passes")
