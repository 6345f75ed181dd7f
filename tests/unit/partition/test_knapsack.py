"""The knapsack solvers: what they take fits, and is worth what brute force says it can be."""

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from ctk.compiler.partition import knapsack

ITEMS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 50)), max_size=9)
SOLVERS = ("greedy", "dp", "exact")


def best(items: list[tuple[int, int]], capacity: int) -> float:
    """Return the most that any set within the capacity is worth."""
    sets = itertools.product((False, True), repeat=len(items))
    chosen = ([item for item, taken in zip(items, each, strict=True) if taken] for each in sets)
    return max(sum(v for _, v in each) for each in chosen if sum(s for s, _ in each) <= capacity)


@pytest.mark.parametrize("solver", SOLVERS)
@settings(deadline=None, max_examples=30)
@given(items=ITEMS, capacity=st.integers(0, 120))
def test_what_is_taken_fits_and_is_worth_enough(solver, items, capacity):
    sizes, values = [size for size, _ in items], [float(value) for _, value in items]
    taken = knapsack.solve(solver, sizes, values, capacity)
    assert sum(sizes[i] for i in taken) <= capacity
    worth = sum(values[i] for i in taken)
    assert worth >= best(items, capacity) * (0.5 if solver == "greedy" else 1)


@pytest.mark.parametrize("solver", SOLVERS)
@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(0, 10**11), max_size=30),
    part=st.floats(0, 1),
)
def test_gigabytes_fit_too(solver, sizes, part):
    capacity = int(sum(sizes) * part)
    taken = knapsack.solve(solver, sizes, [1.0] * len(sizes), capacity)
    assert sum(sizes[i] for i in taken) <= capacity


@pytest.mark.parametrize("seed", range(8))
def test_exact_is_as_good_as_integer_programming(seed):
    """Equal layers, and values that nearly follow the sizes: the bounds cut least there."""
    rng = random.Random(seed)
    sizes = [rng.choice((4096, 65536, rng.randint(1, 10**6))) for _ in range(120)]
    values = [size * (1 + 0.1 * rng.random()) for size in sizes]
    capacity = sum(sizes) // 3
    taken = knapsack.solve("exact", sizes, values, capacity)
    limit = optimize.LinearConstraint(np.array([sizes]) / capacity, ub=1.0)
    worths, ones, bounds = np.array(values) / max(values), np.ones(120), optimize.Bounds(0, 1)
    options = {"mip_rel_gap": 0.0}
    found = optimize.milp(
        -worths, constraints=limit, integrality=ones, bounds=bounds, options=options
    )
    assert sum(sizes[i] for i in taken) <= capacity
    assert sum(values[i] for i in taken) >= -found.fun * max(values) * (1 - 1e-6)


def test_the_example():
    assert knapsack.solve("exact", (4, 3, 2), (5.0, 4.0, 3.0), 5) == {1, 2}
    assert knapsack.solve("dp", (4, 3, 2), (5.0, 4.0, 3.0), 5) == {1, 2}
