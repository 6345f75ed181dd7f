"""A result that is nothing but rounding: another order of the same sum is no failure."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.end_to_end.layers import ask
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.importers.in_memory import program_of


def backwards(gm: GraphModule, inputs: object) -> Callable[..., object]:
    """Add up from the other end."""
    return lambda *args: gm(*(x.flip(0) if isinstance(x, Tensor) else x for x in args))


def off(gm: GraphModule, inputs: object) -> Callable[..., object]:
    return lambda *args: tuple(x + 1 for x in gm(*args))


def cancelled(x: Tensor) -> Tensor:
    return (x - x.mean()).sum() / x.numel()


def narrow(x: Tensor) -> Tensor:
    """Another program in float64: it asks for what it has."""
    return (x - x.mean()).sum() if x.dtype is torch.float32 else x.sum()


@pytest.mark.parametrize(
    ("program", "backend", "verdict"),
    [
        (cancelled, backwards, Verdict.PASSES),
        (cancelled, off, Verdict.REPRODUCES),
        (narrow, off, Verdict.REPRODUCES),
    ],
)
def test_rounding_is_measured(
    program: Callable[..., object], backend: Callable[..., object], verdict: Verdict
) -> None:
    torch.manual_seed(3)
    asked = program_of(program, [torch.randn(4096) * 1e4])
    found = ask(ProgramQuestion(asked, f"{__name__}:{backend.__name__}"))
    assert found.judgement.verdict is verdict, found
