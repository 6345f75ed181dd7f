"""Do inside sub-graphs, at any depth, what other steps do to the whole case.

To let another step in: a line in `INSIDE`. Steps that need other inputs or results than the caller
of a sub-graph gives (cutting, truncating) would propose nothing that can be done.
"""

from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.focus import lifted
from ctk.toolkit.reduce.proposal import Proposal, Step
from ctk.toolkit.reduce.steps import drop_effects, drop_unused, inline_subgraph, remove, shortcut

INSIDE = (
    drop_unused.STEP,
    remove.STEP,
    shortcut.STEP,
    drop_effects.STEP,
    inline_subgraph.STEP,
)


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose what the steps of `INSIDE` do, step by step, sub-graphs in order."""
    return [proposal for step in INSIDE for proposal in lifted(step, case)]


STEP = Step("reduce_subgraphs", propose)
