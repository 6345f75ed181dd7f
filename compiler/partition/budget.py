"""Which values to save within a memory budget.

`low` are the bytes of the smallest cut (hard bans only), `high` those of the one that is best for
run time (all bans). A budget b allows low + b * (high - low) bytes. Taken is the first that fits:
1. all bans; 2. without those that guess how code is fused; 3. without the allow-list, too;
4. of what (3) bans, a knapsack picks what stays banned: what takes longest to compute again.

(4) always fits: the smallest cut together with what is picked is a cut, so the minimum is no more.

Source: torch/_functorch/partitioners.py, `choose_saved_values_set`. Differs: there `low` are the
bytes of the inputs, and at budget 0 random operators are computed again, with other numbers.
"""

from collections.abc import Collection, Iterable

from torch.fx import Node

from ctk.compiler.partition.bans import hard_bans, soft_bans, without_layout_bans
from ctk.compiler.partition.classify import NodeInfo
from ctk.compiler.partition.costs import run_time
from ctk.compiler.partition.knapsack import solve
from ctk.compiler.partition.network import cut, saved_nbytes
from ctk.compiler.partition.options import PartitionOptions


def choose_saved_values_set(info: NodeInfo, options: PartitionOptions) -> list[Node]:
    """Return the nodes whose values forward saves for backward, in order.

    Raises:
        CannotPartition: Backward needs what can neither be saved nor computed again.
    """
    hard = hard_bans(info)
    best = cut(info, hard | soft_bans(info, options)) if options.memory_budget > 0 else []
    if options.memory_budget == 1:
        return best
    smallest = cut(info, hard)
    if options.memory_budget == 0:
        return smallest
    low, high = saved_size(smallest, info), saved_size(best, info)
    room = int(options.memory_budget * (high - low))
    return _within(info, options, hard, low, room)


def saved_size(saved: Iterable[Node], info: NodeInfo) -> int:
    """Return the bytes of saved values, without those that are there anyway (parameters)."""
    return sum(saved_nbytes(node, info) for node in saved)


def _within(
    info: NodeInfo, options: PartitionOptions, hard: frozenset[Node], low: int, room: int
) -> list[Node]:
    soft: frozenset[Node] = frozenset()
    for allow_list in (True, False):
        lifted = without_layout_bans(options, allow_list=allow_list)
        soft = soft_bans(info, lifted)
        saved = cut(info, hard | soft)
        if saved_size(saved, info) <= low + room:
            return saved
    return cut(info, hard | _picked(info, soft - hard, options, room))


def _picked(
    info: NodeInfo, soft: Collection[Node], options: PartitionOptions, room: int
) -> frozenset[Node]:
    """Return what must still not be computed again, within so many bytes."""
    nodes = sorted(soft, key=info.order.__getitem__)
    sizes = [saved_nbytes(node, info) for node in nodes]
    picked = solve(options.solver, sizes, [run_time(node) for node in nodes], room)
    return frozenset(nodes[index] for index in picked)
