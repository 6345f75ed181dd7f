"""Runs of eager under other conditions that break CUDA for the process."""

from collections.abc import Callable

import pytest
import torch

from ctk.compiler.errors import LostAccelerator
from ctk.repro_templates.graph.covering import as_numbers
from ctk.repro_templates.graph.excuses import Variation, Vary
from ctk.repro_templates.graph.judging import judge_runs
from ctk.repro_templates.graph.running import Run


def run(value: float, state: int = 0, *, is_random: bool = False) -> Run:
    """Return a run with one result."""
    return Run({"out0": torch.full((4,), value)}, (torch.tensor(state),), drew_random=is_random)


def breaking_gpu(is_breaking: Callable[[Variation], bool], eager: Run) -> Vary:
    """Return eager runs of which some break CUDA."""

    def vary(variation: Variation) -> Run:
        if is_breaking(variation):
            raise torch.AcceleratorError("device-side assert triggered")
        return eager

    return vary


def test_other_roundings_leave_the_failure() -> None:
    vary = breaking_gpu(lambda each: bool(each.rounding), run(1.4))
    found = judge_runs(run(1.4), run(1.6), vary=vary, reference=lambda: (None, "none"))
    assert found.answer == "fails"
    assert found.detail == "eager breaks the GPU with other roundings: device-side assert triggered"


@pytest.mark.parametrize("exact", [None, 1.5])
def test_other_contents_of_memory_prove_no_failure(exact: float | None) -> None:
    """Also where the difference is eager's own error: float64 lies between the two."""
    values = None if exact is None else {"out0": torch.full((4,), exact, dtype=torch.float64)}
    vary = breaking_gpu(lambda each: each.contents is not None, run(1.4))
    found = judge_runs(run(1.4), run(1.6), vary=vary, reference=lambda: (values, ""))
    assert found.answer == "flaky"
    assert found.detail.endswith("under other conditions: device-side assert triggered")


def test_other_random_numbers_prove_no_failure() -> None:
    eager = run(1.4, state=1, is_random=True)
    vary = breaking_gpu(lambda each: bool(each.seed), eager)
    found = judge_runs(eager, run(1.6), vary=vary, reference=lambda: (None, ""))
    assert found.answer == "flaky"


def test_a_wrong_dtype_stays_a_failure() -> None:
    vary = breaking_gpu(lambda each: each.contents is not None, run(1.4))
    eager, compiled = run(1.4), run(1.6)
    found = judge_runs(
        Run({**eager.values, "out1": torch.ones(2)}, (), drew_random=False),
        Run({**compiled.values, "out1": torch.ones(2).double()}, (), drew_random=False),
        vary=vary,
        reference=lambda: (None, ""),
    )
    assert found.answer == "fails"
    assert [mismatch.kind for mismatch in found.mismatches] == ["dtype"]


class Raising(torch.Tensor):
    """A tensor whose kernel, or class, raises once its numbers are read."""

    error: Exception

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.cpu:
            raise cls.error
        return super().__torch_function__(func, types, args, kwargs or {})


def test_numbers_of_a_broken_gpu_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are asynchronous: the first read raises the exception."""
    value = torch.ones(2).as_subclass(Raising)
    monkeypatch.setattr(Raising, "error", TypeError("no copies"), raising=False)
    assert as_numbers(value) is None
    monkeypatch.setattr(Raising, "error", torch.AcceleratorError("device-side assert triggered"))
    with pytest.raises(LostAccelerator, match="device-side assert triggered"):
        as_numbers(value)
