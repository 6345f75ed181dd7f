"""Count the writes of fused optimizers: torch's fused kernels leave version counters alone.

`Adam(..., fused=True).step()` changes parameters in place, and `parameter._version` stays. Who has
frozen a parameter would not notice. While a graph is frozen, every step of such an optimizer counts
one version up for each of its parameters, as the plain kernels do.
"""

from functools import cache
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


@cache
def count_fused_steps() -> None:
    """Count from now on, in this process; called again, it does nothing."""
    register_optimizer_step_post_hook(_count)


def _count(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
    if torch.compiler.is_compiling():  # a step that is compiled writes by `copy_`, which counts
        return
    for group in optimizer.param_groups:
        if group.get("fused"):
            written = (each for each in group["params"] if each.grad is not None)
            increment_version(each for each in written if not each.is_inference())
