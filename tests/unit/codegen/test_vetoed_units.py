"""Kernels that are left out: their nodes run in eager, between those that are not."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ctk
from ctk import Config
from ctk.toolkit.compile_log.recorder import Recorder
from tests.helpers.lowered import results_of


class Left(Recorder):
    """Leaves out every kernel, or every other one."""

    def __init__(self, every: int, first: int) -> None:
        super().__init__()
        self.every, self.number = every, first

    def allow_kernel(self, kernel: object) -> bool:
        self.number += 1
        return self.number % self.every != 0


def slices_in_place(x: Tensor, total: Tensor) -> Tensor:
    total.add_(x.sum(0))
    total[2:].mul_(0.5)
    return x + total


def views_between(x: Tensor, scale: Tensor) -> Tensor:
    return ((x * scale).softmax(-1) * x).t().contiguous().sum(0)


def parts(x: Tensor, scale: Tensor) -> Tensor:
    left, right = (x.sin() * scale).chunk(2, 1)
    return torch.cat([right.flip(1), left.cos()], 1).cumsum(1) + x.amax(0)


@pytest.mark.parametrize(("every", "first"), [(1, 0), (2, 0), (2, 1)])
@pytest.mark.parametrize("call", [slices_in_place, views_between, parts])
def test_units_with_views_between_their_nodes(call: Callable, every: int, first: int) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        return ctk.compile_fx(gm, inputs, Config(codegen="c", fallback=()), Left(every, first))

    wants = call is not slices_in_place
    inputs = torch.randn(3, 4).requires_grad_(wants), torch.rand(4)
    torch.compiler.reset()
    run = torch.compile(call, backend=backend, fullgraph=True)
    for mine, eager in zip(results_of(run, inputs), results_of(call, inputs), strict=True):
        torch.testing.assert_close(mine, eager)
        assert mine.stride() == eager.stride()


def test_a_unit_that_only_writes() -> None:
    """It returns nothing: a batch norm counts its batches."""
    net = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())
    expected = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU())

    def backend(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        return ctk.compile_fx(gm, inputs, Config(codegen="c", fallback=()), Left(1, 0))

    torch.compiler.reset()
    x = torch.randn(5, 4)
    torch.testing.assert_close(torch.compile(net, backend=backend)(x), expected(x))
    torch.testing.assert_close(net.state_dict(), expected.state_dict())


def test_what_eager_gives_has_the_strides_that_kernels_read() -> None:
    """The gradient of an activation between convolutions with channels last."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.SiLU(), nn.Conv2d(4, 2, 1), nn.SiLU())
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last)
    expected = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    for first in (0, 1):

        def backend(gm: torch.fx.GraphModule, inputs: list, first: int = first) -> Callable:
            return ctk.compile_fx(gm, inputs, Config(codegen="c", fallback=()), Left(2, first))

        torch.compiler.reset()
        loss = torch.compile(net, backend=backend)(x).square().sum()
        torch.testing.assert_close(torch.autograd.grad(loss, list(net.parameters())), expected)
