"""Drop nodes with an effect: in-place ops, mode switches, assertions, ranges.

Mode switches that belong together (autocast is entered and left) go together.
"""

from collections.abc import Sequence

from torch.fx import Node

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import DropEffects
from ctk.toolkit.reduce.proposal import Proposal, Step, Subset


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
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
    return [Subset(_without_effects, atoms) for atoms in groups if atoms]


def _without_effects(groups: tuple[tuple[str, ...], ...]) -> DropEffects:
    return DropEffects(tuple(n for group in groups for n in group))


STEP = Step("drop_effects", propose)
