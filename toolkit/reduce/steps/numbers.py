"""Replace computed numbers, number inputs and symbolic sizes by their values in this run."""

from collections.abc import Sequence

from toolkit.case import Case
from toolkit.reduce.edits import FoldNumbers
from toolkit.reduce.facts import CALLS, Facts, is_number
from toolkit.reduce.proposal import Choice, Proposal, Step


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to fold any combination of number-valued nodes, then of number-valued inputs."""
    nodes = [node for node in case.graph.graph.nodes if is_number(facts.infos[node.name])]
    calls = tuple(node.name for node in nodes if node.op in CALLS)
    inputs = tuple(node.name for node in nodes if node.op == "placeholder")
    return [Choice(FoldNumbers, atoms) for atoms in (calls, inputs) if atoms]


STEP = Step("numbers", propose)
