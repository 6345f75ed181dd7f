"""Drop dead calls and unused inputs.

Nodes with an effect are not dead (`drop_effects`), and a symbolic size stays while a tensor has it.
A dead call may stay without the dead calls that read it: `split` without its `getitem`.
"""

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts, dead_calls
from ctk.toolkit.reduce.edits import DropUnused
from ctk.toolkit.reduce.graph_changes import size_symbol
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to drop dead calls and unused inputs, in any combination."""
    sizes = {size for each in case.dynamic.values() for size in each}
    dead = dead_calls(case.graph, facts.markers | facts.mutators)
    names = [
        node.name
        for node in case.graph.graph.nodes
        if node.name in dead
        or (node.op == "placeholder" and not node.users and size_symbol(node) not in sizes)
    ]
    return [Subset(DropUnused, tuple(names))] if names else []


STEP = Step("drop_unused", propose)
