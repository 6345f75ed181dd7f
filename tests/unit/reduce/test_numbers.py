"""Ladders of simpler numbers: their rungs, from mild to strong."""

import math

import pytest
import torch

from ctk.toolkit.case.formats.tensor_content import Number, rank_of
from ctk.toolkit.reduce.steps.simplify_numbers import ladders


def rungs(value: Number, dtype: torch.dtype = torch.float32) -> list[list[Number]]:
    found = ladders(value, dtype)
    return [[ladder.number(n) for n in range(1, ladder.count + 1)] for ladder in found]


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1.0, torch.float32, []),
        (3.0, torch.float32, [[2.0, 1.0]]),
        (-3.0, torch.float32, [[-2.0, -1.0], [3.0]]),
        (2.5, torch.float32, [[3.0, 2.0, 1.0], [2.0]]),
        (3e3, torch.float32, [[1000.0, 100.0, 10.0, 1.0]]),
        (0.037, torch.float32, [[0.01, 0.1, 1.0], [0.04]]),
        (-0.5, torch.float32, [[-0.1, -1.0, 1.0], [0.5]]),
        (math.nan, torch.float32, [[math.inf, 1.0]]),
        (-math.inf, torch.float16, [[-10000.0, -1.0, 1.0]]),
        (5, torch.int64, [[4, 3, 2, 1]]),
        (-2, torch.int64, [[-1]]),
        (True, torch.bool, []),
        (2 + 3j, torch.complex64, [[2 + 0j, 1 + 0j]]),
    ],
    ids=str,
)
def test_rungs(value: Number, dtype: torch.dtype, expected: list[list[Number]]) -> None:
    assert rungs(value, dtype) == expected


@pytest.mark.parametrize(
    "value", [1.0, 7.0, 110.3, 1e-9, 5e-324, 3.4e38, 1024.5, 2000.0, -0.3, math.inf, math.nan]
)
def test_every_rung_is_simpler_and_fits_the_dtype(value: float) -> None:
    for ladder in rungs(value, torch.float64):
        assert all(rank_of(number) < rank_of(value) for number in ladder)
        assert all(torch.tensor(n, dtype=torch.float64).item() == n for n in ladder)
