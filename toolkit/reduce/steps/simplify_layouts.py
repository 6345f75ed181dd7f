"""Lay tensors out in row-major order, without gaps, each in memory of its own."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.form_edits import MakeContiguous
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset
from ctk.toolkit.reduce.size import layout_rank
from ctk.toolkit.reduce.value_edits import changeable


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose contiguous copies of any tensors that are not contiguous."""
    names = tuple(name for name, tensor in changeable(case).items() if layout_rank(tensor))
    return [Subset(MakeContiguous, names)] if names else []


STEP = Step("simplify_layouts", propose, detail="layouts")
