"""Bessel functions of both kinds satisfy the identity of their Wronskian on both sides of 8."""

import math

import torch
from torch import Tensor

from tests.helpers.lowered import Lowered, captured


def wronskian(x: Tensor) -> Tensor:
    special = torch.special
    first = special.bessel_j1(x) * special.bessel_y0(x)
    return first - special.bessel_j0(x) * special.bessel_y1(x)


def test_the_wronskian() -> None:
    x = torch.linspace(0.01, 60, 4001, dtype=torch.float64)
    lowered = Lowered("c")
    (found,) = lowered.compile(captured(wronskian, 1), [x])(x)
    assert not lowered.library
    torch.testing.assert_close(found * x, torch.full_like(x, 2 / math.pi), rtol=1e-13, atol=0)
