"""Measure the time or the memory of a compiled call against eager's, and decide.

Time: rounds, in each of which both are called, one after the other, often enough to be measured,
and the least of three times counts. The rounds in which the compiled call was slower by the factor
are counted. If a fair coin would give such a count, or a more extreme one, once in 400 looks, then
it is decided, else there are more rounds, and after the last the answer is `flaky`. So neither a
slow moment of the machine nor a single outlier decides:

    factor 1.5, ten rounds     2.1 2.0 2.2 1.9 2.1 2.0 3.8 2.1 2.0 2.2    fails: ten of ten above
                               1.4 1.6 1.5 1.4 1.6 ...                    80 rounds, then flaky

A compiled call has costs of its own (guards, wrappers), which make any small graph slow. So the
time of an almost empty program of the same inputs, and half as much for safety, is subtracted. On
a GPU only its own time counts, launched without gaps.

Memory: the peak above the memory held before the call, measured twice.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, Literal

import torch
from torch import Tensor

from ctk.compiler.torch_compat.process.allocations import (
    cpu_peak_nbytes,
    gpu_peak_nbytes,
    keep_gpu_busy,
)
from ctk.repro_templates.graph.running import State, enter_states, leaves, tangent

Call = Callable[[], object]

LOOKS = (10, 20, 40, 80)
"""Numbers of rounds after which the answer may be decided."""

CHANCE = 0.0025
"""How often equal calls may look as different as these, at each look."""

BATCH_SECONDS = 0.0005
"""Least time of the calls of one measurement together."""

MEASUREMENTS = 3
"""Measurements of each side in a round; the least counts."""

MOST_CALLS = 1000
OWN_COSTS = 1.5
"""Multiple of the costs of a call itself that is subtracted: they vary as well."""

LONG_SECONDS = 0.02
"""Call time above which the costs of the call itself do not matter."""

FLOOR_NBYTES = 1024
"""Least difference that counts as too much memory: a scalar more is not a failure."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of a measurement."""

    answer: Literal["fails", "passes", "flaky"]
    detail: str


def repeatable(
    call: Callable[..., object],
    inputs: Sequence[object],
    modes: Mapping[str, Any],
    states: Sequence[State],
) -> Call:
    """Return a function without arguments that makes one call of a program.

    With `backward` that includes the gradients, for the same tangents each time.
    """
    if not modes["backward"]:
        return lambda: call(*inputs)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    first = leaves(call(*inputs))
    tangents = {
        i: tangent(i, leaf)
        for i, leaf in enumerate(first)
        if isinstance(leaf, Tensor) and leaf.requires_grad
    }

    def once() -> object:
        outputs = leaves(call(*inputs))
        reached = [outputs[i] for i in tangents]
        if not wanted or not reached:
            return outputs
        with enter_states(states, {**modes, "autocast": ()}):
            return torch.autograd.grad(reached, wanted, [*tangents.values()], allow_unused=True)  # type: ignore[arg-type]  # tensors, as the tangents are

    return once


# --- time ---------------------------------------------------------------------------------------


def slowdown(
    eager: Call, compiled: Call, factor: float, empty: Callable[[], Call | None], *, on_gpu: bool
) -> Measured:
    """Decide whether a compiled call takes at least `factor` times as long as eager's.

    Args:
        empty: Returns a call of an almost empty compiled program; None if there is none.
    """
    clock = gpu_seconds if on_gpu else wall_seconds
    rounds: list[tuple[float, float]] = []
    answer: Literal["fails", "passes"] | None = None
    calls = [calls_for(each) for each in (eager, compiled)]
    for look in LOOKS:
        while len(rounds) < look:
            rounds.append(one_round((eager, compiled), calls, clock, turned=len(rounds) % 2 == 1))
        if (answer := decide(rounds, factor)) is not None:
            break
    if answer == "fails" and not on_gpu and median_of(rounds, 1) < LONG_SECONDS:
        own = own_costs(empty)
        answer = decide([(a, b - OWN_COSTS * own) for a, b in rounds], factor)
        if answer == "passes":
            return Measured("passes", f"{words_of(rounds)}; its own costs are {microseconds(own)}")
    return Measured(answer or "flaky", words_of(rounds))


def decide(
    rounds: Sequence[tuple[float, float]], factor: float
) -> Literal["fails", "passes"] | None:
    """Return the answer that pairs of seconds decide; None if they decide none."""
    count = len(rounds)
    above = sum(compiled >= factor * eager for eager, compiled in rounds)
    if tail(count, above) <= CHANCE:
        return "fails"
    return "passes" if tail(count, count - above) <= CHANCE else None


def tail(count: int, least: int) -> float:
    """Return the probability of at least so many heads of a coin."""
    return sum(comb(count, heads) for heads in range(least, count + 1)) / 2**count


def calls_for(call: Call) -> int:
    """Return the number of calls of a measurement; they also warm up."""
    call()
    seconds = min(wall_seconds(call, 1), wall_seconds(call, 1))
    return max(1, min(MOST_CALLS, int(BATCH_SECONDS / max(seconds, 1e-9)) + 1))


def one_round(
    pair: Sequence[Call], calls: Sequence[int], clock: Callable[[Call, int], float], *, turned: bool
) -> tuple[float, float]:
    """Return the seconds of a call of each; they take turns in being first.

    The least of some measurements, because other load of the machine only adds to one.
    """
    order = ((1, 0) if turned else (0, 1)) * MEASUREMENTS
    found: dict[int, list[float]] = {0: [], 1: []}
    for side in order:
        found[side].append(clock(pair[side], calls[side]) / calls[side])
    return min(found[0]), min(found[1])


def wall_seconds(call: Call, calls: int) -> float:
    """Return the time of some calls, with the work that they launched on a GPU."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in range(calls):
            call()
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return time.perf_counter() - started
    finally:
        if is_collecting:
            gc.enable()


def gpu_seconds(call: Call, calls: int) -> float:
    """Return the time that the GPU works on some calls."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    keep_gpu_busy(min(0.1, 1.5 * wall_seconds(call, calls)))
    begin.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / 1000


def own_costs(empty: Callable[[], Call | None]) -> float:
    """Return the seconds of a call of an almost empty compiled program; 0 without one."""
    call = empty()
    if call is None:
        return 0.0
    calls = calls_for(call)
    return statistics.median(wall_seconds(call, calls) / calls for _ in range(LOOKS[0]))


def median_of(rounds: Sequence[tuple[float, float]], side: int) -> float:
    """Return the median of the seconds of one side."""
    return statistics.median(pair[side] for pair in rounds)


def words_of(rounds: Sequence[tuple[float, float]]) -> str:
    """Return the result of some rounds in words."""
    ratio = statistics.median(compiled / max(eager, 1e-9) for eager, compiled in rounds)
    both = [microseconds(median_of(rounds, side)) for side in (1, 0)]
    return f"{ratio:.2f} times eager: {both[0]} against {both[1]} ({len(rounds)} rounds)"


def microseconds(seconds: float) -> str:
    """Return a time for people."""
    return f"{seconds * 1e6:.1f} us"


class Empty(torch.nn.Module):
    """An almost empty program of any inputs: one number of the first tensor, and one."""

    def forward(self, *inputs: object) -> tuple[Tensor]:
        """Return the number."""
        tensors = [x for x in inputs if isinstance(x, Tensor)]
        learned = [x for x in tensors if x.requires_grad]
        first = (learned or tensors or [torch.zeros(1)])[0]
        return (first[(slice(0, 1),) * first.dim()] + 1,)


# --- memory -------------------------------------------------------------------------------------


def extra_memory(eager: Call, compiled: Call, factor: float, *, on_gpu: bool) -> Measured:
    """Decide whether a compiled call has `factor` times the peak memory of eager's."""
    peak = gpu_peak_nbytes if on_gpu else cpu_peak_nbytes
    for call in (eager, compiled):
        call()
    pairs = [(peak(eager), peak(compiled)) for _ in range(2)]
    above = {b >= factor * a and b - a >= FLOOR_NBYTES for a, b in pairs}
    before, after = pairs[-1]
    times = f"{after / before:.2f} times eager" if before else "eager takes none"
    detail = f"{times}: {after} bytes against {before}, at the peak of a call"
    return Measured("flaky" if len(above) > 1 else "fails" if above == {True} else "passes", detail)


def uses_gpu(values: Sequence[object]) -> bool:
    """Return whether one of some values is on a GPU."""
    return any(isinstance(value, Tensor) and value.is_cuda for value in values)
