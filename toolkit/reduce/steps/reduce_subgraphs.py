"""Apply other steps inside sub-graphs, at any depth; `INSIDE` and `OUTSIDE` say which."""

from collections.abc import Mapping
from types import MappingProxyType

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Proposals, Step
from ctk.toolkit.reduce.steps import (
    drop_effects,
    drop_operands,
    drop_unused,
    fold_numbers,
    inline_subgraph,
    remove,
    shortcut,
    simplify_arguments,
)
from ctk.toolkit.reduce.subgraph_edits import lift_proposals

INSIDE = (
    drop_unused.STEP,
    remove.STEP,
    shortcut.STEP,
    drop_effects.STEP,
    inline_subgraph.STEP,
    drop_operands.STEP,
    fold_numbers.STEP,
    simplify_arguments.STEP,
)

_FIXED = "the caller of a sub-graph fixes its inputs and results"
_WHOLE = "it edits the settings around the graph"
_ALL = "it changes sub-graphs together with the outermost graph"
_TENSORS = "operands are the caller's; a sub-graph's own constants are changed from outside"

OUTSIDE: Mapping[str, str] = MappingProxyType({
    "halve": _FIXED,
    "drop_suffix": _FIXED,
    "drop_prefix": _FIXED,
    "drop_outputs": _FIXED,
    "drop_passed_on": _FIXED,
    "cut": _FIXED,
    "reform_inputs": _FIXED,
    "merge_inputs": _FIXED,
    "drop_gradients": _FIXED,
    "forward_only": _WHOLE,
    "leave_out_passes": _WHOLE,
    "drop_options": _WHOLE,
    "drop_modes": _WHOLE,
    "shrink_dimensions": _ALL,
    "move_to_cpu": _ALL,
    "reduce_subgraphs": _ALL,
    "simplify_dtypes": _TENSORS,
    "simplify_layouts": _TENSORS,
    "simplify_values": _TENSORS,
    "fewest_nonzeros": _TENSORS,
    "move_elements": _TENSORS,
    "simplify_numbers": _TENSORS,
    "plain_inputs": _TENSORS,
})  # fmt: skip
"""Steps that do not look inside, with the reason."""


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose the edits of the steps of `INSIDE`, step by step, sub-graphs in order."""
    return list(lift_proposals(INSIDE, case, may_run=facts.may_run))


STEP = Step("reduce_subgraphs", propose)
