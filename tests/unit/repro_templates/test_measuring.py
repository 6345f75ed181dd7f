"""Time and memory of two calls, and when the difference is believed."""

import time
from collections.abc import Callable
from dataclasses import asdict

import pytest
import torch

from ctk.repro_templates.graph.measuring import (
    CHANCE,
    FLOOR_NBYTES,
    LOOKS,
    decide,
    extra_memory,
    repeatable,
    slowdown,
    tail,
)
from ctk.repro_templates.graph.running import STATES
from ctk.toolkit.case.case import Modes

Call = Callable[[], object]


def spin(seconds: float) -> Call:
    def call() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    return call


def nothing() -> None:
    return None


@pytest.mark.parametrize(("count", "least"), [(10, 10), (20, 17), (40, 30), (80, 53)])
def test_how_many_rounds_are_no_chance(count: int, least: int) -> None:
    assert tail(count, least) <= CHANCE < tail(count, least - 1)


def test_pairs_decide_or_do_not() -> None:
    assert decide([(1.0, 3.0)] * 10, 1.5) == "fails"
    assert decide([(1.0, 1.2)] * 10, 1.5) == "passes"
    assert decide([(1.0, 1.0), (1.0, 2.0)] * 5, 1.5) is None
    assert decide([(1.0, 3.0)] * 9 + [(50.0, 3.0)], 1.5) is None
    assert decide([(1.0, 3.0)] * 19 + [(50.0, 3.0)], 1.5) == "fails"


def test_a_slow_call_is_told_in_the_fewest_rounds_it_takes() -> None:
    found = slowdown(spin(2e-4), spin(8e-4), 1.5, lambda: nothing, on_gpu=False)
    assert found.answer == "fails"
    assert "times eager" in found.detail


def test_a_call_that_is_not_slow_by_the_factor_passes() -> None:
    found = slowdown(spin(4e-4), spin(4e-4), 3.0, lambda: nothing, on_gpu=False)
    assert found.answer == "passes"


def test_what_a_call_itself_costs_is_no_slow_kernel() -> None:
    """A wrapper of 300 us around 10 us of work, beside eager's 10 us."""
    found = slowdown(spin(1e-5), spin(3.1e-4), 2.0, lambda: spin(3e-4), on_gpu=False)
    assert found.answer == "passes"
    assert "own costs" in found.detail


def test_rounds_that_contradict_each_other_are_flaky() -> None:
    calls = [0]

    def unsteady() -> None:
        calls[0] += 1
        spin(0.004 if (calls[0] - 1) // 3 % 2 else 0.001)()

    found = slowdown(spin(0.002), unsteady, 1.0, lambda: None, on_gpu=False)
    assert found.answer == "flaky"
    assert f"({LOOKS[-1]} rounds)" in found.detail


def holding(*sizes: int) -> Call:
    return lambda: [torch.empty(size, dtype=torch.uint8) for size in sizes]


@pytest.mark.parametrize(
    ("eager", "compiled", "answer"),
    [
        (holding(100_000), holding(100_000, 100_000, 100_000), "fails"),
        (holding(100_000), holding(100_000, 50_000), "passes"),
        (nothing, holding(100_000), "fails"),
        (holding(10), holding(FLOOR_NBYTES), "passes"),
    ],
)
def test_memory_at_its_peak(eager: Call, compiled: Call, answer: str) -> None:
    assert extra_memory(eager, compiled, 2.0, on_gpu=False).answer == answer


def test_what_is_freed_in_between_does_not_add_up() -> None:
    def one_after_the_other() -> None:
        for _ in range(10):
            torch.empty(100_000, dtype=torch.uint8)

    found = extra_memory(holding(100_000), one_after_the_other, 1.5, on_gpu=False)
    assert found.answer == "passes"
    assert "100000 bytes against 100000" in found.detail


def test_a_call_may_be_repeated_with_its_gradients() -> None:
    x = torch.ones(3, requires_grad=True)
    modes = asdict(Modes(backward=True))
    call = repeatable(lambda x: ((x * 2).sum(), x.detach()), (x,), modes, STATES)
    for _ in range(3):
        (gradient,) = call()  # type: ignore[misc]  # one per input that requires a gradient
        assert torch.equal(gradient, torch.full((3,), 2.0))
    assert x.grad is None
