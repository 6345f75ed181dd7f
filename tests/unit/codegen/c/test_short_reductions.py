"""Reductions of few numbers, whose lanes are the rows, give eager's results."""

import pytest
import torch
from torch import Tensor

from tests.helpers.lowered import compare

DTYPES = (torch.float32, torch.float64, torch.float16, torch.uint8)


def numbers(dtype: torch.dtype, *shape: int) -> Tensor:
    """Return numbers with ties; of floats also NaNs and infinities."""
    torch.manual_seed(0)
    made = torch.randint(0, 9, shape).to(dtype)
    if dtype.is_floating_point:
        made = made - 4
        made.view(-1)[::29], made.view(-1)[5::31] = torch.nan, -torch.inf
    return made


def reduced(x: Tensor, axis: int) -> list[Tensor]:
    return [
        *(x.sum(axis), x.amax(axis), x.amin(axis), x.argmax(axis), x.argmin(axis)),
        *(
            *x.max(axis),
            *x.min(axis),
            (x > 1).any(axis),
            (x > -3).all(axis),
            x.clamp(-1, 1).prod(axis),
        ),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 17])
def test_rows_and_columns(dtype: torch.dtype, count: int) -> None:
    def both(x: Tensor, y: Tensor) -> list[Tensor]:
        return [*reduced(x, -1), *reduced(y, 1)]

    compare(both, numbers(dtype, 40, count), numbers(dtype, 2, count, 40), codegen="c")


@pytest.mark.parametrize("width, step", [(8, 4), (4, 8)])
def test_windows(width: int, step: int) -> None:
    x = numbers(torch.float32, 3, 200)
    compare(lambda x: reduced(x.unfold(1, width, step), -1), x, codegen="c")


@pytest.mark.parametrize("count", [2, 9])
def test_several_sweeps_of_a_row(count: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, count, 24)
    compare(lambda x: [x.softmax(1).var(1), x.softmax(2).var(2)], x, codegen="c")
    compare(lambda x: [x - x.mean(a, keepdim=True) for a in (1, 2)], x, codegen="c")
    compare(lambda x: [x.logsumexp(1), torch.layer_norm(x, (24,))], x, codegen="c")
    compare(lambda x: x.var((1, 2)), torch.randn(40, 2, count), codegen="c")


def test_few_rows_and_a_size_of_the_call() -> None:
    for rows in (0, 3):
        compare(lambda x: reduced(x, -1), numbers(torch.float32, rows, 4), codegen="c")
    compare(lambda x: reduced(x, -1), numbers(torch.float32, 50, 4), codegen="c", dynamic=True)


def test_the_place_in_several_dimensions() -> None:
    x = numbers(torch.float32, 30, 3, 4)
    compare(lambda x: [x.flatten(1).argmax(1), x.flatten(1).max(1)[1]], x, codegen="c")
