"""The settings of torch's partitioner, in `torch._functorch.config`, in the words of ctk.

    torch._functorch.config.activation_memory_budget = 0.5  ->  {"partition.memory_budget": 0.5}

Settings without a counterpart hand the graph to torch's own partitioner, which carries them out
(`partition/split.py`).
"""

import sys
from collections.abc import Mapping

_BUDGET = "activation_memory_budget"
_SOLVER = "activation_memory_budget_solver"

_NAMES = {
    _BUDGET: "memory_budget",
    "ban_recompute_used_far_apart": "ban_used_far_apart",
    "ban_recompute_long_fusible_chains": "ban_long_fusible_chains",
    "ban_recompute_materialized_backward": "ban_materialized_backward",
    "ban_recompute_not_in_allowlist": "ban_not_in_allow_list",
    "ban_recompute_reductions": "ban_reduction",
    "aggressive_recomputation": "aggressive_recomputation",
    _SOLVER: "solver",
}

_NEUTRAL: Mapping[str, object] = {
    **dict.fromkeys(_NAMES, True),
    _BUDGET: 1.0,
    "aggressive_recomputation": False,
    _SOLVER: "dp",
}
"""The values with the meaning of ctk's defaults."""


def partition_changes() -> dict[str, object]:
    """Return the options of `partition` that settings of torch stand for."""
    if "torch._functorch.config" not in sys.modules:
        return {}
    from ctk.compiler.torch_compat.aot.partition import SOLVERS, changed_settings

    settings = changed_settings(_NEUTRAL)
    solver = settings.pop(_SOLVER, None)
    if isinstance(solver, str) and solver in SOLVERS:
        settings[_SOLVER] = SOLVERS[solver]
    return {f"partition.{_NAMES[name]}": value for name, value in settings.items()}
