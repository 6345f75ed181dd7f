"""New tensors in the memory of others."""

import pytest
import torch

from ctk.compiler.torch_compat.process.strided_tensors import in_memory_of


@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.float64, torch.complex64])
@pytest.mark.parametrize("stride", [(8, 1), (1, 8), (16, 2)])
def test_a_tensor_takes_memory_of_another_type_and_layout(dtype, stride):
    other = torch.empty_strided((8, 8), stride)
    count = 256 // dtype.itemsize
    made = in_memory_of(other, (count // 4, 4), (1, count // 4), dtype)
    assert made.data_ptr() == other.data_ptr()
    assert (made.dtype, made.shape, made.stride()) == (dtype, (count // 4, 4), (1, count // 4))


def test_a_transposed_mask_holds_floats():
    mask = torch.ones(8, 64, dtype=torch.bool).t()
    made = in_memory_of(mask, (16, 8), (8, 1), torch.float32)
    made.fill_(2)
    assert made.untyped_storage().data_ptr() == mask.untyped_storage().data_ptr()
    assert made.sum() == 256
