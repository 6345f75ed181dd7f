"""The Gumbel max trick: the same samples, and the values that it treats in another way."""

import pytest
import torch
import torch.nn.functional as F

from tests.unit.passes.test_pre_grad import compiled_with_log, count

NAME = "sample_by_gumbel_max"
ON = {NAME: {"enabled": True}}


def sampled(logits, dim=-1, keepdim=True, rate=1.0):
    probabilities = F.softmax(logits, dim)
    noise = torch.empty_like(logits).exponential_(rate)
    return torch.argmax(probabilities / noise, dim=dim, keepdim=keepdim)


def run(function, *inputs):
    torch.manual_seed(3)
    return function(*inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [-1, 0])
def test_samples_are_those_of_eager(dim, dtype):
    def program(x):
        return sampled(x, dim, keepdim=dim == 0)

    compiled, log = compiled_with_log(program, passes=ON)
    x = torch.randn(500, 20, dtype=dtype)
    assert torch.equal(run(compiled, x), run(program, x))
    assert count(log, NAME) == 1


def test_it_is_off_by_default():
    compiled, log = compiled_with_log(sampled)
    run(compiled, torch.randn(3, 4))
    assert count(log, NAME) == 0


def other_rate(x):
    return sampled(x, rate=2.0)


def other_noise(x):
    return torch.argmax(x.softmax(-1) / torch.rand_like(x), -1)


def other_dimension(x):
    return torch.argmax(x.softmax(0) / torch.empty_like(x).exponential_(), -1)


def other_sizes(x):
    return torch.argmax(x.softmax(-1) / torch.empty_like(x[:1]).exponential_(), -1)


def other_dtype(x):
    return torch.argmax(x.softmax(-1) / torch.empty_like(x, dtype=torch.float64).exponential_(), -1)


def of_all(x):
    return torch.argmax(x.softmax(-1) / torch.empty_like(x).exponential_())


def quotients_returned(x):
    quotients = x.softmax(-1) / torch.empty_like(x).exponential_()
    return torch.argmax(quotients, -1), quotients


@pytest.mark.parametrize(
    "function",
    [
        other_rate,
        other_noise,
        other_dimension,
        other_sizes,
        other_dtype,
        of_all,
        quotients_returned,
    ],
)
def test_it_must_not_fire(function):
    compiled, log = compiled_with_log(function, passes=ON)
    x = torch.randn(6, 4)
    torch.testing.assert_close(run(compiled, x), run(function, x), rtol=0, atol=0)
    assert count(log, NAME) == 0
