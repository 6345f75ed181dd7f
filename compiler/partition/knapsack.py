"""Knapsack: which values to save within some bytes, so that recomputation takes least time.

    sizes (4, 3, 2), values (5.0, 4.0, 3.0), capacity 5:  {1, 2} is worth 7.0, {0} only 5.0

Three solvers, all of which return a set that fits:
1. `greedy`: worth per byte, or the single best item; worth at least half of the best. n log n.
2. `dp`: dynamic programming over `BUCKETS` of the capacity; best where sizes are whole buckets.
3. `exact`: the list of undominated sets, cut by bounds; best, and exponential at worst.

Source: torch/_functorch/_activation_checkpointing/knapsack.py has the same three. Differs: sizes
are integers and are rounded up, so that a result always fits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ctk.compiler.partition.options import Solver

BUCKETS = 2000
"""The number of parts into which `dp` divides the capacity."""

ROUNDING = 1e-12
"""Relative error of sums of values: `exact` drops no set for less."""


def solve(
    solver: Solver, sizes: Sequence[int], values: Sequence[float], capacity: int
) -> frozenset[int]:
    """Return the indices of the items to take; sizes and capacity are bytes."""
    fitting = [i for i, size in enumerate(sizes) if 0 < size <= capacity]
    free = frozenset(i for i, size in enumerate(sizes) if size == 0)
    if sum(sizes[i] for i in fitting) <= capacity:
        return free | frozenset(fitting)
    taken = SOLVERS[solver]([sizes[i] for i in fitting], [values[i] for i in fitting], capacity)
    return free | frozenset(fitting[i] for i in taken)


def greedy(sizes: Sequence[int], values: Sequence[float], capacity: int) -> Iterable[int]:
    """Take the items worth most per byte while they fit, or the one item worth more than these."""
    taken: list[int] = []
    room = capacity
    for item in sorted(range(len(sizes)), key=lambda i: (-values[i] / sizes[i], sizes[i], i)):
        if sizes[item] <= room:
            taken.append(item)
            room -= sizes[item]
    best = max(range(len(sizes)), key=lambda i: values[i])
    return taken if sum(values[i] for i in taken) >= values[best] else [best]


def dp(sizes: Sequence[int], values: Sequence[float], capacity: int) -> Iterable[int]:
    """Find the best for each number of buckets, item by item, then walk back."""
    import numpy as np

    unit = -(-capacity // BUCKETS)
    room = capacity // unit
    weights = [-(-size // unit) for size in sizes]
    best = np.zeros(room + 1)
    better = np.zeros((len(sizes), room + 1), dtype=bool)
    for item, (weight, value) in enumerate(zip(weights, values, strict=True)):
        if weight > room:
            continue
        found = best[: room + 1 - weight] + value
        better[item, weight:] = found > best[weight:]
        best[weight:] = np.maximum(best[weight:], found)
    taken: list[int] = []
    for item in reversed(range(len(sizes))):
        if better[item, room]:
            taken.append(item)
            room -= weights[item]
    return taken


def exact(sizes: Sequence[int], values: Sequence[float], capacity: int) -> Iterable[int]:
    """Extend every undominated set by each item, the densest first, then walk back.

    A set is dropped if another one is no larger and worth as much, or if the rest of its room,
    filled at the best density, does not reach the best whole filling.

    Source: Nemhauser and Ullmann, Discrete Dynamic Programming and Capital Allocation (1969), with
    Dantzig's bound.
    """
    import numpy as np

    order = sorted(range(len(sizes)), key=lambda i: -values[i] / sizes[i])
    weights, worths = np.array([sizes[i] for i in order]), np.array([values[i] for i in order])
    weight_before = np.concatenate(([0], np.cumsum(weights)))
    worth_before = np.concatenate(([0.0], np.cumsum(worths)))
    densities = np.append(worths / weights, 0.0)
    weight, worth, best = np.array([0]), np.array([0.0]), 0.0
    steps: list[tuple[Any, Any]] = []
    for item in range(len(order)):
        (fitting,) = np.nonzero(weight + weights[item] <= capacity)
        parent = np.concatenate((np.arange(len(weight)), fitting))
        is_taken = np.arange(len(parent)) >= len(weight)
        weight = weight[parent] + is_taken * weights[item]
        worth = worth[parent] + is_taken * worths[item]
        room = capacity - weight + weight_before[item + 1]
        end = np.searchsorted(weight_before, room, side="right") - 1  # the next items that all fit
        filled = worth + worth_before[end] - worth_before[item + 1]
        best = max(best, float(filled.max()))
        bound = filled + (room - weight_before[end]) * densities[end]
        (kept,) = np.nonzero(bound >= best * (1 - ROUNDING))
        kept = kept[np.lexsort((-worth[kept], weight[kept]))]
        lighter = np.concatenate(([-1.0], np.maximum.accumulate(worth[kept])[:-1]))
        kept = kept[worth[kept] > lighter]
        weight, worth = weight[kept], worth[kept]
        steps.append((parent[kept], is_taken[kept]))
    chosen, taken = int(np.argmax(worth)), list[int]()
    for item, (parent, is_taken) in zip(reversed(order), reversed(steps), strict=True):
        if is_taken[chosen]:
            taken.append(item)
        chosen = int(parent[chosen])
    return taken


SOLVERS: Mapping[Solver, Callable[[Sequence[int], Sequence[float], int], Iterable[int]]] = {
    "greedy": greedy,
    "dp": dp,
    "exact": exact,
}
