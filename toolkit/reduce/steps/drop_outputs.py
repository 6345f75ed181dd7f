"""Drop results: first all but the one computed last, then any combination.

Truncation ends where the failure is, so that the last one most likely shows it.
"""

from collections.abc import Sequence

from torch.fx import Node

from ctk.compiler.fx.walk import output_leaves
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import DropOutputs
from ctk.toolkit.reduce.proposal import Guesses, Proposal, Step, Subset


def propose(case: Case, facts: Facts) -> Sequence[Proposal]:
    """Propose to keep only the result that is computed last; then to drop any combination."""
    leaves = output_leaves(case.graph)
    if len(leaves) < 2:
        return []
    order = {node: place for place, node in enumerate(case.graph.graph.nodes)}
    places = [order[leaf] if isinstance(leaf, Node) else -1 for leaf in leaves]
    last = places.index(max(places))
    positions = tuple(range(len(leaves)))
    others = tuple(position for position in positions if position != last)
    return [Guesses((DropOutputs(others),)), Subset(DropOutputs, positions)]


STEP = Step("drop_outputs", propose, is_thorough=False)
