"""Backward of a compiled program runs under the autocast of its forward, as torch documents."""

import pytest
import torch
from torch import Tensor, fx

from ctk.toolkit.case.case import Autocast, Case, Modes
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.oracle.questions.judge import judge

BFLOAT16 = Modes(backward=True, autocast=(Autocast("cpu", "bfloat16"),))


def matrix() -> Tensor:
    drawn = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    return (drawn + 4 * torch.eye(6)).requires_grad_()


PROGRAMS = {
    "inverse": lambda x: (torch.linalg.inv(x).sin(),),
    "solve": lambda x: (torch.linalg.solve(x, torch.eye(6)).tanh(),),
    "cholesky": lambda x: (torch.linalg.cholesky(x.mul(x) + 30 * torch.eye(6)),),
    "inverse beside another": lambda x: (torch.linalg.inv(x).cos(), x.sin()),
}


def case_of(program, target: str, modes: Modes) -> Case:
    return Case(fx.symbolic_trace(program), (matrix(),), target=target, modes=modes)


@pytest.mark.parametrize("target", ["aot_eager", "ctk"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_its_gradients_are_documented(name: str, target: str) -> None:
    answer = judge(case_of(PROGRAMS[name], target, BFLOAT16))
    assert answer.verdict is Verdict.DOCUMENTED, answer
    assert "backward-autocast" in answer.detail


def test_without_autocast_they_are_equal() -> None:
    answer = judge(case_of(PROGRAMS["inverse"], "aot_eager", Modes(backward=True)))
    assert answer.verdict is Verdict.PASSES


class Scaled(torch.autograd.Function):
    """The same numbers, and gradients that are a tenth larger."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        return grad * 1.1


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_gradient_under_autocast_is_a_failure(name: str, judged) -> None:
    def scaled(gm, example_inputs):
        return lambda x: (Scaled.apply(gm(x)[0]),)

    answer = judged(PROGRAMS[name], (matrix(),), scaled, modes=BFLOAT16)
    assert answer.verdict is Verdict.REPRODUCES, answer
