"""Drop what nothing uses: dead code that was in the graph from the start, and inputs without users.

Nodes with an effect are no dead code (`drop_effects`), and a symbolic size stays while a tensor has
it.
"""

from collections.abc import Sequence

from ctk.compiler.fx.walk import CALLS
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.apply import size_symbol
from ctk.toolkit.reduce.edits import DropUnused
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to drop unused nodes and inputs, in any combination."""
    sizes = {size for each in case.dynamic.values() for size in each}
    unused = [node for node in case.graph.graph.nodes if not node.users]
    names = [
        node.name
        for node in unused
        if (node.op in CALLS and node.name not in facts.markers | facts.mutators)
        or (node.op == "placeholder" and size_symbol(node) not in sizes)
    ]
    return [Subset(DropUnused, tuple(names))] if names else []


STEP = Step("drop_unused", propose)
