"""Kernels in Triton's interpreter compute what the reference interpreter computes."""

import pytest
import torch
from torch.nn import functional as F

pytest.importorskip("triton")

from ctk.compiler.codegen.triton.options import TritonOptions
from tests.helpers.triton_kernels import check


def test_pointwise_of_broadcast_and_strided_operands() -> None:
    x, y = torch.randn(7, 1, 33), torch.randn(5, 7).t()[:, :, None]
    check(lambda a, b: torch.where(a > b, a * 2, (b - a).exp()), x, y)


def test_pointwise_in_bfloat16() -> None:
    check(lambda x, b: F.gelu(x + b), torch.randn(9, 70).bfloat16(), torch.randn(70).bfloat16())


def test_softmax_of_short_rows() -> None:
    check(lambda x: torch.softmax(x, -1), torch.randn(5, 70))


def test_layer_norm() -> None:
    check(lambda x: F.layer_norm(x, (70,)), torch.randn(5, 70).bfloat16())


def test_symbolic_sizes() -> None:
    check(lambda x: torch.softmax(x * 2, -1), torch.randn(5, 70), symbolic=True)


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("chunk", [8, 32])
def test_split_reductions(chunk: int, symbolic: bool) -> None:
    options = TritonOptions(interpret=True, chunk=chunk)
    x = torch.randint(-8, 8, (3, 70)).float()  # sums are exact in any order
    for function in (
        lambda x: x.sum(),
        lambda x: x.amax(0),
        lambda x: torch.softmax(x, -1),
        lambda x: F.layer_norm(x, (70,)),
    ):
        check(function, x, options=options, symbolic=symbolic)
