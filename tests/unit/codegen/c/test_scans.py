"""Running results whose costly values are computed in lanes are those of eager."""

import pytest
import torch
from torch import Tensor

from tests.helpers.lowered import compare


def rows(count: int) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(7, count)
    x[1, ::3], x[2, -1:], x[3], x[4, :2] = torch.nan, torch.inf, -torch.inf, -torch.inf
    return x


def running(x: Tensor) -> list[Tensor]:
    return [
        x.logcumsumexp(1),
        x.softmax(1).cumsum(1),
        x.exp().cumsum(1).log(),
        (x / 3).cumprod(1),
        x.logcumsumexp(1).exp() - x.sigmoid().cumsum(1),
        x.sigmoid().cumsum(1).sqrt().cumsum(1),
        x.t().exp().cumsum(0),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 5, 100])
def test_rows(dtype: torch.dtype, count: int) -> None:
    compare(running, rows(count).to(dtype), codegen="c")


def test_rows_of_a_size_of_the_call_and_long_ones() -> None:
    compare(running, rows(40), codegen="c", dynamic=True)
    compare(running, torch.randn(2, 9000), codegen="c")


def test_integers_and_half() -> None:
    x = torch.arange(1, 41).view(4, 10)
    compare(lambda x: [(x // 3).cumsum(1), (1 / x).cumsum(1)], x, codegen="c")
    compare(lambda x: [x.logcumsumexp(1), x.sigmoid().cumsum(1)], rows(40).half(), codegen="c")
