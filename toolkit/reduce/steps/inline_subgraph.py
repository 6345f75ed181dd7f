"""Replace a call of sub-graphs by the nodes of one: a branch of `cond`, one turn of a loop."""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import InlineCall
from ctk.toolkit.reduce.proposal import Proposals, Step, ladder_of_edits
from ctk.toolkit.reduce.subgraphs import subgraphs


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to inline each sub-graph, one at a time."""
    found = subgraphs(case.graph)
    return [ladder_of_edits(InlineCall(each.call, each.target)) for each in found]


STEP = Step("inline_subgraph", propose)
