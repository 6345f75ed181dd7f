"""TorchScript code generation of functions, family by family, with fixed and symbolic sizes."""

import pytest
import torch

from tests.helpers.codegen_graphs import assert_like_eager, functional


def positions(x, index):
    picked = x[:, index]
    put = x.index_put((index,), torch.tensor(1.0), accumulate=True)
    spread = torch.zeros_like(x).scatter_add(0, index.unsqueeze(1).expand(-1, 4), x[:3])
    return picked, put, spread, x.gather(1, index.unsqueeze(0)), x.index_select(0, index)


def orders(x, index):
    values, where = x.sort(-1, descending=True)
    top = x.topk(2)
    return values, where, top.values, top.indices, x.argmax(0), x.max(1).values, x.cumsum(0)


def masks(x, index):
    mask = x > 0
    infinite = x.masked_fill(mask, float("-inf"))
    return torch.where(mask, x, 0.5), infinite, mask & ~mask.roll(1), infinite.softmax(-1)


def views(x, index):
    strided = torch.as_strided(x, (2, 2), (4, 2), 1)
    parts = x.split([1, 3], dim=1)
    first, *_ = x.unbind(0)
    return x.t(), x[:, ::2], strided, *parts, first.expand(3, 4), x.reshape(2, 8).unsqueeze(1)


def integers(x, index):
    wide = index.to(torch.int32)
    return wide // 2, wide % 2, index << 1, index.bitwise_and(1), index / 2, index.pow(2), -index


def factories(x, index):
    return (
        torch.full((2, 3), True),
        torch.full((2,), 1.5, dtype=torch.float16),
        torch.zeros(3).expand(2, 3),
        torch.arange(4) + index.sum(),
        torch.eye(3),
        torch.full((2,), float("nan")),
        torch.tensor([1.0, 2.0]) * x[0, :2],
    )


def complexes(x, index):
    spectrum = torch.fft.fft(x) * (1 + 2j)
    return spectrum, spectrum.abs(), torch.view_as_real(spectrum), spectrum.real


def conversions(x, index):
    return (
        x.to(torch.float64),
        x.to(torch.bool),
        x.half().float(),
        x.to(x.dtype, copy=True),
        x.int(),
    )


def variances(x, index):
    return x.var(), x.std(0, correction=0), *torch.var_mean(x, 1), x.norm(), x.mean((0, 1), True)


def numbers(x, index):
    return 1 - x, x + 2, x * 0.5, 2**x, x / 3, x.div(3, rounding_mode="floor"), x.add(x, alpha=2)


FUNCTIONS = (
    positions,
    orders,
    masks,
    views,
    integers,
    factories,
    complexes,
    conversions,
    variances,
    numbers,
)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_functions(fn) -> None:
    inputs = [torch.randn(4, 4), torch.tensor([0, 2, 1])]
    assert_like_eager(functional(fn, *inputs), inputs)


@pytest.mark.parametrize("fn", [positions, masks, views, numbers, variances])
def test_functions_with_symbolic_sizes(fn) -> None:
    inputs = [torch.randn(4, 4), torch.tensor([0, 2, 1])]
    others = [torch.randn(4, 4), torch.tensor([3, 0, 2])]
    assert_like_eager(functional(fn, *inputs, symbolic=True), inputs, others)
