"""The ordered table of steps. To add one: a file with a `STEP`, and a line here.

Order matters for cost, not for the result: what removes much for few questions comes first.
"""

from ctk.toolkit.reduce.proposal import Step
from ctk.toolkit.reduce.steps import (
    cut,
    drop_effects,
    drop_modes,
    drop_options,
    drop_outputs,
    drop_prefix,
    drop_suffix,
    drop_unused,
    fewest_nonzeros,
    fold_numbers,
    forward_only,
    halve,
    inline_subgraph,
    leave_out_passes,
    move_elements,
    reduce_subgraphs,
    reform_inputs,
    remove,
    shortcut,
    shrink_dimensions,
    simplify_numbers,
    simplify_values,
)

STEPS: tuple[Step, ...] = (
    forward_only.STEP,
    drop_unused.STEP,
    halve.STEP,
    drop_suffix.STEP,
    drop_outputs.STEP,
    drop_prefix.STEP,
    remove.STEP,
    cut.STEP,
    shortcut.STEP,
    reform_inputs.STEP,
    drop_effects.STEP,
    inline_subgraph.STEP,
    reduce_subgraphs.STEP,
    fold_numbers.STEP,
    shrink_dimensions.STEP,
    leave_out_passes.STEP,
    drop_options.STEP,
    drop_modes.STEP,
    simplify_values.STEP,
    fewest_nonzeros.STEP,
    move_elements.STEP,
    simplify_numbers.STEP,
)
