"""Extremes of rows and columns in C: ties, infinities, NaNs and their places."""

import pytest
import torch
from torch import Tensor

from tests.helpers.lowered import compare


def extremes(x: Tensor) -> list[Tensor]:
    found = [x.amax(1), x.amin(0), *x.max(1), *x.min(1), *x.max(0), x.argmin(), x.argmax(0)]
    return [*found, x.isnan().any(1), (x == x).all(0), (x > 0).any(), x.amax(), x.argmax(1) + 1]


def hard(rows: int, columns: int, dtype: torch.dtype) -> Tensor:
    """Return rows with ties, of infinities only, and with two NaNs."""
    x = (torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)) * 3).round()
    if not dtype.is_floating_point:
        x[0] = torch.iinfo(dtype).min
        return x.clamp(-100, 100).to(dtype) if dtype != torch.uint8 else x.abs().to(dtype)
    x[0], x[1] = -torch.inf, torch.inf
    x[2, columns // 2] = x[2, columns - 1] = torch.nan
    return x.to(dtype)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int8, torch.uint8]
)
def test_extremes(dtype: torch.dtype) -> None:
    compare(lambda *each: [extremes(x) for x in each], *(
        hard(*shape, dtype) for shape in ((4, 1), (5, 300), (3, 9000), (70, 64))
    ), codegen="c")  # fmt: skip


def test_a_long_row_in_chunks() -> None:
    x = hard(3, 1 << 16, torch.float32)
    compare(lambda *each: [[*y.max(0), y.amin(0)] for y in each], *x, codegen="c")
