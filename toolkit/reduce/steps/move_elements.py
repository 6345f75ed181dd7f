"""Move the few elements that are not zero to the front: `x[6, 4] = 101` becomes `x[0, 0] = 101`."""

from functools import partial

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import index_of
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposal, Proposals, Step, Subset
from ctk.toolkit.reduce.value_edits import MoveElement, changeable, core_shape

FEW = 8
"""So many elements are moved, one by one."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose, for each element that is not zero, any dimensions in which it is moved."""
    proposals: list[Proposal] = []
    for name, tensor in changeable(case).items():
        content, shape = facts.contents.of(tensor), core_shape(tensor)
        if content.kind != "zeros" or not 0 < content.nonzeros <= FEW:
            continue
        for place in (place for run in content.runs for place in range(run.start, run.stop)):
            dims = tuple(dim for dim, index in enumerate(index_of(place, shape)) if index)
            if dims:
                proposals.append(Subset(partial(MoveElement, name, shape, place), dims))
    return proposals


STEP = Step("move_elements", propose, detail="values")
