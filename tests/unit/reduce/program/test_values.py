"""Results on disk: each comes back as it was."""

import math

import pytest
import torch

from ctk.repro_templates.program.program_values import read_values, write_values


def reread(value, folder):
    write_values({"a": value, "b": torch.ones(2)}, folder / "values")
    found = read_values(folder / "values")
    assert torch.equal(found["b"], torch.ones(2))
    return found["a"]


@pytest.mark.parametrize(
    "value", [None, True, 2**70, 1.5, math.inf, 1j, "text", ("a", ("b", 1), True)]
)
def test_numbers_and_texts(value, tmp_path):
    assert reread(value, tmp_path) == value


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).t(),
        torch.ones(3).expand(2, 3),
        torch.tensor(True),
        torch.ones(0, 3),
        torch.ones(2, dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.float8_e4m3fn),
        torch.tensor([1 + 2j]).conj(),
        torch.arange(8)[2:5],
    ],
    ids=str,
)
def test_tensors(tensor, tmp_path):
    found = reread(tensor, tmp_path)
    assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
    assert found.stride() == tensor.stride() or not tensor.numel()
    assert torch.equal(found.to(torch.complex64), tensor.to(torch.complex64))


def test_what_else_there_is_becomes_a_text(tmp_path):
    assert reread(torch.float32, tmp_path) == "dtype torch.float32"
    assert reread(torch.ones(2, device="meta"), tmp_path).startswith("a meta tensor")
