"""The ordered table of steps. To add one: a file with a `STEP`, and a line here.

Order matters for cost, not for the result: what removes much for few questions comes first.
"""

from ctk.toolkit.reduce.proposal import Step
from ctk.toolkit.reduce.steps import (
    bypass,
    drop_effects,
    drop_outputs,
    drop_prefix,
    drop_suffix,
    drop_unused,
    fold_numbers,
    inline_subgraph,
    reduce_subgraphs,
    remove_middle,
    simplify_values,
)

STEPS: tuple[Step, ...] = (
    drop_unused.STEP,
    drop_suffix.STEP,
    drop_outputs.STEP,
    drop_prefix.STEP,
    bypass.STEP,
    remove_middle.STEP,
    drop_effects.STEP,
    inline_subgraph.STEP,
    reduce_subgraphs.STEP,
    fold_numbers.STEP,
    simplify_values.STEP,
)
