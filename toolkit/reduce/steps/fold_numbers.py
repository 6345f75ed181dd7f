"""Replace computed numbers, number inputs and symbolic sizes by their values in this run."""

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts, is_number
from ctk.toolkit.reduce.edits import FixSizes, FoldNumbers
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to fix symbolic sizes, then to fold number-valued nodes, then number inputs."""
    sizes = [size for each in case.dynamic.values() for size in each if size]
    nodes = [node for node in case.graph.graph.nodes if is_number(facts.infos[node.name])]
    calls = [node.name for node in nodes if node.op in CALLS]
    inputs = [node.name for node in nodes if node.op == "placeholder"]
    return [
        Subset(FixSizes, tuple(dict.fromkeys(sizes))),
        Subset(FoldNumbers, tuple(calls)),
        Subset(FoldNumbers, tuple(inputs)),
    ]


STEP = Step("fold_numbers", propose)
