"""The choice of saved values within a memory budget.

`low` is the bytes of the smallest cut (hard bans only), `high` the bytes of the cut for the best
run time (all bans). A budget b allows low + b * (high - low) bytes, and beyond the inputs of
forward b times the bytes of the best cut beyond them. The first cut that fits both is taken:
1. all bans but the guesses at fusion; 2. likewise without the allow-list;
3. a knapsack picks from the bans of (2) the nodes that take longest to recompute;
4. a knapsack of b * (high - low) bytes. It always fits: the smallest cut and the picked nodes
   together are a cut, so the minimum has no more bytes.

Source: torch/_functorch/partitioners.py, `choose_saved_values_set`, for (1) to (3). Differs: a cut
has the least bytes under the same bans, (4) makes the budget a bound, and a budget of 0 is the
smallest cut. In torch a budget of 0 saves all inputs of forward, and draws other random numbers.
"""

from dataclasses import dataclass

from torch.fx import Node

from ctk.compiler.partition.bans import hard_bans, soft_bans, without_layout_bans
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.costs import run_time, total_nbytes
from ctk.compiler.partition.knapsack import solve
from ctk.compiler.partition.network import Cut, cut
from ctk.compiler.partition.options import PartitionOptions, require_budget

DEFAULTS = PartitionOptions()


def choose_saved_values_set(
    info: NodeInfo, memory_budget: float, options: PartitionOptions = DEFAULTS
) -> list[Node]:
    """Return the nodes whose values forward saves for backward, in order.

    Args:
        memory_budget: From 0 to 1; the budget of the options is not read.

    Raises:
        ConfigError: The budget is not from 0 to 1.
        CannotPartition: Backward needs a value that can neither be saved nor recomputed.
    """
    require_budget(memory_budget)
    hard = hard_bans(info)
    if memory_budget == 0:
        return cut(info, hard).values
    best = cut(info, hard | soft_bans(info, options))
    if memory_budget == 1:
        return best.values
    return _Budget(info, options, hard, memory_budget, best).choose().values


@dataclass(frozen=True, slots=True)
class _Budget:
    """A budget between 0 and 1 on one graph."""

    info: NodeInfo
    options: PartitionOptions
    hard: frozenset[Node]
    budget: float
    best: Cut

    def choose(self) -> Cut:
        """Return the first cut that fits."""
        low = cut(self.info, self.hard).nbytes
        room = int(self.budget * (self.best.nbytes - low))
        beyond = self._beyond_inputs(self.best)
        soft: frozenset[Node] = frozenset()
        for allow_list in (True, False):
            soft = soft_bans(self.info, without_layout_bans(self.options, allow_list=allow_list))
            found = cut(self.info, self.hard | soft)
            if found.nbytes <= low + room and self._fits(found, beyond):
                return found
        if beyond > 0:
            found = self._with_picked(soft, int(self.budget * beyond))
            if found.nbytes <= low + room:
                return found
        return self._with_picked(soft, room)

    def _fits(self, found: Cut, beyond: int) -> bool:
        return beyond <= 0 or self._beyond_inputs(found) < self.budget * beyond

    def _beyond_inputs(self, found: Cut) -> int:
        """Return the saved bytes beyond the bytes of the inputs of forward, parameters included."""
        return total_nbytes(found.values) - total_nbytes(self.info.forward_inputs)

    def _with_picked(self, soft: frozenset[Node], room: int) -> Cut:
        """Return the cut that saves the nodes which a knapsack of `room` bytes picks."""
        nodes = sorted(soft - self.hard, key=self.info.order.__getitem__)
        nodes.sort(key=lambda node: -total_nbytes([node]))
        sizes = [total_nbytes([node]) for node in nodes]
        picked = solve(self.options.solver, sizes, [run_time(node) for node in nodes], room)
        return cut(self.info, self.hard | {nodes[index] for index in picked})
