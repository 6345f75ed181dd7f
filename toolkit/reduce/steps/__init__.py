"""The ordered table of steps. To add one: a file with a `STEP`, and a line here.

Order matters for cost, not for the result: what removes much for few questions comes first.
"""

from ctk.toolkit.reduce.proposal import Step
from ctk.toolkit.reduce.steps import (
    bypass,
)
from ctk.toolkit.reduce.steps import (
    bypass_in_subgraphs as inside,
)
from ctk.toolkit.reduce.steps import (
    drop_effects as effects,
)
from ctk.toolkit.reduce.steps import (
    drop_outputs as outputs,
)
from ctk.toolkit.reduce.steps import (
    drop_prefix as cut,
)
from ctk.toolkit.reduce.steps import (
    drop_suffix as truncate,
)
from ctk.toolkit.reduce.steps import (
    drop_unused as unused,
)
from ctk.toolkit.reduce.steps import (
    fold_numbers as numbers,
)
from ctk.toolkit.reduce.steps import (
    inline_subgraph as inline,
)
from ctk.toolkit.reduce.steps import (
    remove_middle as remove,
)
from ctk.toolkit.reduce.steps import (
    simplify_values as values,
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
