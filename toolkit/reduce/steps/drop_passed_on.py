"""Drop results that are inputs or constants."""

from torch.fx import Node

from ctk.compiler.fx.walk import CALLS, output_leaves
from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.edits import DropOutputs
from ctk.toolkit.reduce.proposal import Proposals, Step, Subset


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to drop any of these results if there are computed ones besides."""
    leaves = output_leaves(case.graph)
    passed_on = tuple(place for place, leaf in enumerate(leaves) if not _is_computed(leaf))
    return [Subset(DropOutputs, passed_on)] if 0 < len(passed_on) < len(leaves) else []


def _is_computed(leaf: object) -> bool:
    return isinstance(leaf, Node) and leaf.op in CALLS


STEP = Step("drop_passed_on", propose)
