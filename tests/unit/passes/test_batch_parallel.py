"""Parallel pointwise functions and layer norms as one of a stack, as Inductor's options ask for."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ctk.compiler.passes.post_grad import batch_parallel
from tests.unit.passes.test_pre_grad import compiled_with_log, count

NAME = "batch_parallel"
ON = {NAME: {"enabled": True}}


def tanh(x, y):
    return torch.cat([torch.tanh(x) @ y.t(), torch.tanh(y) @ x.t()], 1)


def sigmoid(x, y):
    return torch.sigmoid(x), torch.sigmoid(y)


def relu(x, y):
    return F.relu(x) @ F.relu(y).t()


def add(x, y):
    return (x + 1) @ (y + 1).t()


def sub(x, y):
    return (x - y) @ (y - x).t()


def mul(x, y):
    return (x * y) @ (y * x).t() @ (x.sin() * y).t().t()


def div(x, y):
    shared = y.cos() + 2
    return (x / shared) @ (y / shared).t()


def clamp(x, y):
    return x.clamp(-1, 1) @ y.clamp(-1, 1).t()


def nan_to_num(x, y):
    return torch.nan_to_num(x) @ torch.nan_to_num(y).t()


@pytest.mark.parametrize("function", [tanh, sigmoid, relu, add, sub, mul, div, clamp, nan_to_num])
def test_pointwise_functions_are_batched(function):
    compiled, log = compiled_with_log(function, passes=ON)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch.testing.assert_close(compiled(x, y), function(x, y))
    assert count(log, NAME) >= 1


class Norms(nn.Module):
    """Layer norms of two inputs, over one dimension and over two."""

    def __init__(self, affine, bias=True):
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(6, 0.1, affine, bias) for _ in range(2))
        self.wide = nn.ModuleList(nn.LayerNorm((3, 6), 0.1, affine, bias) for _ in range(2))
        for parameter in self.parameters():
            nn.init.uniform_(parameter)

    def forward(self, x, y):
        a, b = self.norms[0](x), self.norms[1](y)
        c, d = self.wide[0](x), self.wide[1](y)
        return a * b, c - d, a


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norms_are_batched(affine, bias):
    model = Norms(affine, bias)
    compiled, log = compiled_with_log(model, passes=ON)
    x, y = torch.randn(2, 3, 6, requires_grad=True), torch.randn(2, 3, 6)
    results, expected = compiled(x, y), model(x, y)
    torch.testing.assert_close(results, expected)
    sums = [sum(each.square().sum() for each in found) for found in (results, expected)]
    found, wanted = (torch.autograd.grad(each, [x, *model.parameters()]) for each in sums)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert count(log, NAME) >= 2


def test_it_is_off_by_default_and_has_limits():
    on = {"enabled": True}
    for options in ({}, {**on, "pointwise": False}, {**on, "min_group": 3}):
        compiled, log = compiled_with_log(sigmoid, passes={NAME: options})
        compiled(torch.randn(3), torch.randn(3))
        assert count(log, NAME) == 0
    with pytest.raises(ValueError, match="min_group must be at least 2"):
        batch_parallel.BatchParallel(min_group=1)


def written_between(x, y):
    a = torch.sigmoid(x)
    x.add_(1)
    return a, torch.sigmoid(x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (torch.tanh(x), torch.tanh(y))[0],  # the other is dead code
        lambda x, y: torch.tanh(torch.tanh(x)),
        lambda x, y: F.layer_norm(F.layer_norm(x, (4,)), (4,)),
        lambda x, y: torch.tanh(torch.tanh(x).sum(1, keepdim=True) * y),
        lambda x, y: (torch.tanh(x), torch.tanh(y[:2])),
        lambda x, y: (torch.tanh(x), torch.tanh(y.double())),
        lambda x, y: (torch.tanh(x), torch.tanh(y.t())),
        lambda x, y: (x.clamp(0, 1), y.clamp(0, 2)),
        lambda x, y: (x + y[0], y + x[0]),
        lambda x, y: (F.dropout(x, 0.5), F.dropout(y, 0.5)),
        lambda x, y: (F.layer_norm(x, (4,)), F.layer_norm(y, (4, 4))),
        lambda x, y: (F.layer_norm(x, (4,)), F.layer_norm(y, (4,), eps=0.1)),
    ],
)
def test_it_must_not_fire(function):
    compiled, log = compiled_with_log(function, passes=ON)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    torch.manual_seed(1)
    found = compiled(x, y)
    torch.manual_seed(1)
    torch.testing.assert_close(found, function(x, y), rtol=0, atol=0)
    assert count(log, NAME) == 0


def test_results_share_no_memory_and_see_writes_in_order():
    for function in (sigmoid, written_between):
        compiled, _ = compiled_with_log(function, passes=ON)
        x, y = torch.randn(3), torch.randn(3)
        expected = function(x.clone(), y)
        results = compiled(x, y)
        torch.testing.assert_close(results, expected)
        results[0].zero_()
        assert results[1].any()
