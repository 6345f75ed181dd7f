"""Replace a call of sub-graphs by the nodes of one of them.

A branch of `cond`, one turn of a loop, a checkpoint's body.
"""

from collections.abc import Sequence

from toolkit.case import Case
from toolkit.reduce.edits import InlineCall
from toolkit.reduce.facts import Facts
from toolkit.reduce.proposal import Ladder, Proposal, Step
from toolkit.reduce.subgraphs import subgraphs


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to inline each sub-graph, one at a time."""
    found = subgraphs(case.graph)
    return [Ladder((InlineCall(each.call, each.target),)) for each in found]


STEP = Step("inline", propose)
