"""Bessel functions, erfcx and digamma: as kernels in C near what scipy has, and in Triton."""

import numpy as np
import pytest
import torch

from tests.helpers.lowered import Lowered, captured
from tests.helpers.triton_kernels import INTERPRETED, check

special = pytest.importorskip("scipy.special")

EXACT = {
    "digamma": special.digamma, "special_erfcx": special.erfcx, "i0": special.i0,
    "special_i0e": special.i0e, "special_i1": special.i1, "special_i1e": special.i1e,
}  # fmt: skip

EDGES = [0.0, -0.0, 1.0, -1.0, -2.0, 8.0, -8.0, 40.0, -40.0, 1e-30, 1e30, -1e30, float("inf"),
         float("-inf"), float("nan")]  # fmt: skip


def functions(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(getattr(torch.ops.aten, name)(x) for name in EXACT)


def inputs(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    near = torch.rand(300, dtype=torch.float64) * 40 - 10
    return torch.cat((torch.tensor(EDGES, dtype=torch.float64), near)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_kernels_in_c_are_accurate(dtype: torch.dtype) -> None:
    x = inputs(dtype)
    lowered = Lowered("c")
    found = lowered.compile(captured(functions, 1), [x])(x)
    assert not lowered.library
    limit = 5e-6 if dtype == torch.float32 else 2e-14
    for name, ours, eager in zip(EXACT, found, functions(x), strict=True):
        exact = EXACT[name](x.double().numpy())
        torch.testing.assert_close(ours.isnan(), eager.isnan(), msg=name)
        finite = np.isfinite(torch.from_numpy(exact).to(dtype).numpy())
        found_there, exact = ours.double().numpy()[finite], exact[finite]
        off = np.abs(found_there - exact) / np.maximum(np.abs(exact), 1)
        assert off.max() <= limit, (name, off.max())


@INTERPRETED
def test_kernels_in_triton_are_those_of_the_reference() -> None:
    check(functions, inputs(torch.float32), rtol=1e-5, atol=1e-5)
