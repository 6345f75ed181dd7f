"""Kernels as C compute what eager computes."""

import pytest
import torch

from ctk.compiler.codegen.c.compile import find_compiler
from ctk.compiler.errors import CodegenUnsupported
from tests.helpers.c_kernels import run_as_c

GENERATOR = torch.Generator().manual_seed(9)


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=GENERATOR).to(dtype)


def several(x, y):
    gelu = torch.nn.functional.gelu(x + y)
    total = (x * 2).sum(), x.double().sum(0), x.amax(1), x.amin(), x.mean(-1)
    norm = torch.nn.functional.layer_norm(x, x.shape[1:], y, y)
    return gelu, *total, norm, torch.softmax(x, -1), x + x.exp().t()[: x.shape[0]].t()[:, :1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_kernels_compute_what_eager_computes(dtype: torch.dtype) -> None:
    inputs = drawn(7, 33, dtype=dtype), drawn(33, dtype=dtype)
    found, wanted = run_as_c(several, *inputs), several(*inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_extremes_keep_nan() -> None:
    x = drawn(4, 50)
    x[1, 17] = float("nan")
    x[2] = float("-inf")
    found = run_as_c(lambda x: (x.amax(1), x.amin(1)), x)
    torch.testing.assert_close(found, [x.amax(1), x.amin(1)], equal_nan=True)


def test_long_sums_keep_their_digits() -> None:
    x = torch.rand(1_000_000, generator=GENERATOR)
    (found,) = run_as_c(lambda x: x.sum(), x)
    assert abs(found.double() - x.double().sum()) <= 0.1


def test_no_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CC", "mycc")
    with pytest.raises(CodegenUnsupported, match=r"no C compiler found \(looked for mycc, cc"):
        find_compiler()
