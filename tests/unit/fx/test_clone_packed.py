"""Weights that oneDNN or MKL has packed mean the same in a copy of a graph."""

import pytest
import torch

from ctk.compiler.fx.clone import clone_inputs


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="needs MKL's packed weights")
def test_a_packed_weight_gives_the_same_numbers_in_a_copy():
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 4), torch.randn(4, 4), torch.randn(4)
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, 2)
    (copy,) = clone_inputs([packed])
    expected = torch.ops.mkl._mkl_linear(x, packed, weight, bias, 2)
    assert torch.equal(torch.ops.mkl._mkl_linear(x, copy, weight, bias, 2), expected)
