"""Knapsack: which values to save within some bytes, so that recomputation takes least time.

    sizes (4, 3, 2), values (5.0, 4.0, 3.0), capacity 5:  {1, 2} is worth 7.0, {0} only 5.0

Three solvers, all of which return a set that fits:
1. `greedy`: worth per byte, or the single best item; worth at least half of the best. n log n.
2. `dp`: dynamic programming over `BUCKETS` of the capacity; best where sizes are whole buckets.
3. `exact`: integer programming (scipy's HiGHS); best, and exponential at worst.

Source: torch/_functorch/_activation_checkpointing/knapsack.py has the same three. Differs: sizes
are integers and are rounded up, so that a result always fits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ctk.compiler.partition.options import Solver

BUCKETS = 2000
"""The number of parts into which `dp` divides the capacity."""


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
    """Solve the integer program; if rounding exceeds the capacity, again with a smaller one."""
    import numpy as np
    from scipy.optimize import Bounds, LinearConstraint, milp

    ones = np.ones(len(sizes))
    worth = np.array(values) / (max(values) or 1.0)
    limit = float(capacity)
    while True:
        room = LinearConstraint(np.array([sizes]) / capacity, ub=limit / capacity)
        options = {"mip_rel_gap": 0.0}
        found: Any = milp(
            -worth, constraints=room, integrality=ones, bounds=Bounds(0, 1), options=options
        )
        taken = [i for i, chosen in enumerate(found.x) if chosen > 0.5]
        over = sum(sizes[i] for i in taken) - capacity
        if over <= 0:
            return taken
        limit -= over


SOLVERS: Mapping[Solver, Callable[[Sequence[int], Sequence[float], int], Iterable[int]]] = {
    "greedy": greedy,
    "dp": dp,
    "exact": exact,
}
