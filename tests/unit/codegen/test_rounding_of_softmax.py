"""Kernels of a softmax round products; other kernels may contract them with sums."""

import pytest
import torch

from ctk.compiler.codegen.triton.variants import takes_exp_of_difference
from ctk.compiler.lowering.ir import Kernel
from tests.helpers.triton_kernels import fused


def kernels(function, *inputs):
    return [step for step in fused(function, *inputs).steps if isinstance(step, Kernel)]


@pytest.mark.parametrize(
    ("function", "is_rounded"),
    [
        (lambda x: (x * 3.1).softmax(-1), True),
        (lambda x: (x / 3.1 + 1).log_softmax(-1), True),
        (lambda x: (x * 2).exp() - x * 3, False),
        (lambda x: torch.nn.functional.gelu(x * 2 + 1), False),
    ],
)
def test_only_an_exponential_of_a_difference_needs_rounded_products(function, is_rounded):
    found = [takes_exp_of_difference(each) for each in kernels(function, torch.randn(4, 8))]
    assert any(found) == is_rounded
