"""The knapsack solvers: what they take fits, and is worth what brute force says it can be."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


def test_the_example():
    assert knapsack.solve("exact", (4, 3, 2), (5.0, 4.0, 3.0), 5) == {1, 2}
    assert knapsack.solve("dp", (4, 3, 2), (5.0, 4.0, 3.0), 5) == {1, 2}
