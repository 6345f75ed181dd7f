"""A result that is nothing but rounding: another order of the same sum is no failure."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
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


def far_off(gm: GraphModule, inputs: object) -> Callable[..., object]:
    return lambda *args: tuple(x + 100 for x in gm(*args))


def cancelled(x: Tensor) -> Tensor:
    return (x - x.mean()).sum() / x.numel()


def beside(x: Tensor) -> Tensor:
    """Chaos in the first elements; the others are well-conditioned."""
    y = (x[:16] * 1e-4).sigmoid()
    for _ in range(60):
        y = 3.9 * y * (1 - y)
    return torch.cat([y, (x * 1e-4).sigmoid()])


def last_off(gm: GraphModule, inputs: object) -> Callable[..., object]:
    return lambda *args: tuple(x + 0.3 * (torch.arange(len(x)) == len(x) - 1) for x in gm(*args))


def narrow(x: Tensor) -> Tensor:
    """Another program in float64: it asks for what it has."""
    return (x - x.mean()).sum() if x.dtype is torch.float32 else x.sum()


def trained() -> Callable[[Tensor], Tensor]:
    """The gradient of a bias before a batch norm is rounding; Adam makes whole steps of it."""
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


# Dynamo looks at the gradients of all tensors
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize(
    ("backend", "verdict"),
    [
        ("aot_eager", None),
        pytest.param(off, Verdict.REPRODUCES, marks=pytest.mark.slow),
    ],
)
def test_a_training_step_may_round_otherwise(backend: Any, verdict: Verdict | None) -> None:
    """It passes, or is ill-conditioned, if no verdict is given: the machine decides."""
    torch.manual_seed(3)
    asked = program_of(trained(), [torch.randn(16, 8)])
    spec = backend if isinstance(backend, str) else f"{__name__}:{backend.__name__}"
    found = ask(ProgramQuestion(asked, spec))
    seen = found.judgement
    assert seen.is_no_failure if verdict is None else seen.verdict is verdict, found


@pytest.mark.parametrize(
    ("program", "backend", "verdict"),
    [
        (cancelled, backwards, Verdict.ILL_CONDITIONED),  # eager has no correct digit
        (cancelled, off, Verdict.REPRODUCES),
        (narrow, off, Verdict.ILL_CONDITIONED),  # its own roundings move eager by 1
        (narrow, far_off, Verdict.REPRODUCES),
        (beside, last_off, Verdict.REPRODUCES),
    ],
)
def test_rounding_is_measured(
    program: Callable[..., object], backend: Callable[..., object], verdict: Verdict
) -> None:
    torch.manual_seed(3)
    asked = program_of(program, [torch.randn(4096) * 1e4])
    found = ask(ProgramQuestion(asked, f"{__name__}:{backend.__name__}"))
    assert found.judgement.verdict is verdict, found
