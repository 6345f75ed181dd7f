"""The ordered table of steps. To add one: a file with a `STEP`, and a line here.

Order matters for cost, not for the result: what removes much for few questions comes first.
"""

from toolkit.reduce.proposal import Step
from toolkit.reduce.steps import (
    bypass,
    cut,
    effects,
    inline,
    inside,
    numbers,
    outputs,
    remove,
    truncate,
    unused,
    values,
)

STEPS: tuple[Step, ...] = (
    unused.STEP,
    truncate.STEP,
    outputs.STEP,
    cut.STEP,
    bypass.STEP,
    remove.STEP,
    effects.STEP,
    inline.STEP,
    inside.STEP,
    numbers.STEP,
    values.STEP,
)
