"""Options of the partitioner: `Config(passes={"partition": {"memory_budget": 0.5}})`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ctk.compiler.errors import not_taken
from ctk.compiler.options.choices import Options

Algorithm = Literal["min_cut", "default", "torch"]
Solver = Literal["greedy", "dp", "exact"]


@dataclass(frozen=True, slots=True)
class PartitionOptions(Options):
    """Options of the split of a joint graph.

    Attributes:
        algorithm: `min_cut`; `default`: save all that backward needs, recompute nothing; or
            `torch`: torch's own min-cut partitioner, which reads torch's own options.
        memory_budget: From 0 (save as little as possible) to 1 (save for the best run time). A
            budget between allows that fraction of the difference in saved bytes.
        solver: Algorithm of the choice between 0 and 1 (`knapsack.py`).
        ban_used_far_apart: Save a value with one reader at once and one behind an operator that
            does not fuse with it.
        ban_long_fusible_chains: Save a value in every chain of more than a hundred fusible
            operators.
        ban_materialized_backward: Save a value that backward would write to memory anyway.
        ban_not_in_allow_list: Recompute only operators known to be cheap (`operator_facts.py`).
        ban_reduction: Save results of less than a quarter of their operands' bytes.
        aggressive_recomputation: Lift all of these bans but `ban_reduction`.
    """

    name: ClassVar[str] = "partition"

    algorithm: Algorithm = "min_cut"
    memory_budget: float = 1.0
    solver: Solver = "dp"
    ban_used_far_apart: bool = True
    ban_long_fusible_chains: bool = True
    ban_materialized_backward: bool = True
    ban_not_in_allow_list: bool = True
    ban_reduction: bool = True
    aggressive_recomputation: bool = False

    def __post_init__(self) -> None:
        require_budget(self.memory_budget)


def require_budget(budget: float) -> None:
    """Raise `ConfigError` if a memory budget is not from 0 to 1."""
    if not 0 <= budget <= 1:
        allowed = "0 (save as little as possible) to 1 (save for the best run time)"
        raise not_taken("memory_budget", budget, allowed)
