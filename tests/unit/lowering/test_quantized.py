"""Quantizing and dequantizing are kernels with the bits of torch's functions."""

import pytest
import torch
from torch import Tensor

from ctk.compiler.torch_compat.inductor import onednn
from tests.helpers.c_kernels import run_as_c

library = onednn.quantized_decomposed()
GENERATOR = torch.Generator().manual_seed(3)
ONE = (0.05, 64, 0, 127, torch.uint8)
EACH = (1, -128, 127, torch.int8)


def quantize(x: Tensor, scales: Tensor, zeros: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    return (
        library.quantize_per_tensor.default(x, *ONE),
        library.quantize_per_tensor.tensor(x, scales[:1], zeros[:1], 0, 255, torch.uint8),
        library.quantize_per_channel.default(x, scales, zeros, *EACH),
    )


def dequantize(n: Tensor, m: Tensor, scales: Tensor, zeros: Tensor) -> tuple[Tensor, ...]:
    return (
        library.dequantize_per_tensor.default(n, *ONE),
        library.dequantize_per_tensor.default(n, *ONE, out_dtype=torch.bfloat16),
        library.dequantize_per_tensor.tensor(n, scales[0], zeros[0], 0, 255, torch.uint8),
        library.dequantize_per_channel.default(m, scales, zeros, *EACH),
        library.dequantize_per_channel.default(m, scales, None, *EACH),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_kernels_have_the_bits_of_eager(dtype: torch.dtype) -> None:
    x = torch.randn(4, 6, 35, generator=GENERATOR) * 5
    x[0, 0, :6] = torch.tensor([torch.inf, -torch.inf, 1e30, 0.125, 0.375, -0.0])
    x = x.to(dtype)
    n = torch.randint(0, 256, (4, 6, 35), generator=GENERATOR)
    scales = torch.rand(6, generator=GENERATOR) / 10 + 0.01
    zeros = torch.randint(-5, 5, (6,), generator=GENERATOR)
    integers = n.to(torch.uint8), (n - 128).to(torch.int8)
    for function, inputs in (
        (quantize, (x, scales, zeros)),
        (dequantize, (*integers, scales, zeros)),
    ):
        for one, other in zip(run_as_c(function, *inputs), function(*inputs), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
