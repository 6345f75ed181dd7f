"""Move a case from a GPU to the CPU, so that it can be run without one."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.form_edits import MoveToCpu
from ctk.toolkit.reduce.proposal import Proposals, Step, ladder_of_edits
from ctk.toolkit.reduce.value_edits import tensors_of


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to move everything, if any tensor is elsewhere."""
    is_elsewhere = any(t.device.type != "cpu" for t in tensors_of(case).values())
    return [ladder_of_edits(MoveToCpu())] if is_elsewhere else []


STEP = Step("move_to_cpu", propose, detail="devices")
