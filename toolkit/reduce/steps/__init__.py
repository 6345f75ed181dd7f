"""The ordered table of steps. To add one: a file with a `STEP`, and a line here.

Order matters for cost, not for the result: what removes much for few questions comes first.
"""

from ctk.toolkit.reduce.proposal import Step
from ctk.toolkit.reduce.steps import (
    cut,
    drop_effects,
    drop_outputs,
    drop_prefix,
    drop_suffix,
    drop_unused,
    fold_numbers,
    halve,
    inline_subgraph,
    reduce_subgraphs,
    remove,
    shortcut,
    simplify_values,
)

STEPS: tuple[Step, ...] = (
    drop_unused.STEP,
    halve.STEP,
    drop_suffix.STEP,
    drop_outputs.STEP,
    drop_prefix.STEP,
    remove.STEP,
    cut.STEP,
    shortcut.STEP,
    drop_effects.STEP,
    inline_subgraph.STEP,
    reduce_subgraphs.STEP,
    fold_numbers.STEP,
    simplify_values.STEP,
)
