import pytest
import torch
from netlib import backends, passes

PLANTED_PASS = {"custom_passes": {"joint": [passes.cancel_division]}}


def ratio(x, y):
    return x / x + y


def weighted(x, y):
    return torch.add(x.sin(), y, alpha=3)


def test_softmax_with_inductor():
    x = torch.randn(4, 7)
    found = torch.compile(torch.softmax)(x, -1)
    assert torch.allclose(found, torch.softmax(x, -1))


@pytest.mark.parametrize("shape", [(3,), (2, 5)], ids=str)
def test_gelu_of_any_shape(shape):
    gelu, x = torch.nn.functional.gelu, torch.randn(shape)
    assert torch.allclose(torch.compile(gelu, backend=backends.plain)(x), gelu(x))


def test_ratio_away_from_zero():
    compiled = torch.compile(ratio, backend="ctk", options=PLANTED_PASS)
    x = torch.rand(4) + 1
    assert compiled(x, x).isfinite().all()


@pytest.mark.parametrize("zeros", [0, 2])
def test_ratio(zeros):
    compiled = torch.compile(ratio, backend="ctk", options=PLANTED_PASS)
    x = torch.rand(6) + 1
    x[:zeros] = 0
    assert compiled(x, torch.ones(6)).shape == (6,)  # does not look at the values


def test_weighted_sum():
    options = {"post_grad_custom_pre_pass": passes.shorten_sums}
    compiled = torch.compile(weighted, options=options)
    assert compiled(torch.randn(5), torch.randn(5)).dtype == torch.float32


def test_names_of_shapes():
    assert str(torch.Size([2, 3])) == "torch.Size([2, 3])"
