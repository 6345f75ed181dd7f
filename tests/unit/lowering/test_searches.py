"""Searches in sorted numbers find eager's places."""

import pytest
import torch
from torch import Tensor

from tests.helpers.lowered import compare


@pytest.mark.parametrize("codegen", ["", "c"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
def test_searches(codegen: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    lines = [(torch.randn(count) * 9).to(dtype).sort()[0] for count in (1, 2, 3, 5, 8, 33, 100)]
    x = torch.cat([(torch.randn(99) * 9).to(dtype), *lines])
    table = (torch.randn(len(x), 7) * 9).to(dtype).sort(-1)[0]
    if dtype.is_floating_point:
        x[::9], x[1::11] = torch.nan, torch.inf

    def searched(x: Tensor, table: Tensor, *lines: Tensor) -> list[Tensor]:
        return [
            *(torch.bucketize(x, line) for line in lines),
            *(torch.searchsorted(line, x, right=True, out_int32=True) for line in lines),
            torch.searchsorted(table, x[:, None], side="right"),
        ]

    assert not compare(searched, x, table, *lines, codegen=codegen).library
