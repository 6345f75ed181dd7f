"""Drop nodes with an effect: in-place ops, mode switches, assertions, ranges.

Mode switches that belong together (autocast is entered and left) go together.
"""

from torch.fx import Node

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import DropEffects, of_units
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to drop any combination of markers, then of in-place ops."""
    markers: dict[str, list[str]] = {}
    heads: dict[Node, str] = {}
    for node in case.graph.graph.nodes:
        if node.name in facts.markers:
            opener = next((a for a in node.all_input_nodes if a in heads), None)
            heads[node] = heads[opener] if opener else node.name
            markers.setdefault(heads[node], []).append(node.name)
    mutators = tuple((n.name,) for n in case.graph.graph.nodes if n.name in facts.mutators)
    groups = [tuple(tuple(group) for group in markers.values()), mutators]
    return [Subset(of_units(DropEffects), atoms) for atoms in groups if atoms]


STEP = Step("drop_effects", propose)
