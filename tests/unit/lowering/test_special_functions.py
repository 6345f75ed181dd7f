"""Special functions: as kernels in C near what scipy has, and in Triton."""

import numpy as np
import pytest
import torch

from tests.helpers.lowered import Lowered, captured
from tests.helpers.triton_kernels import INTERPRETED, check

special = pytest.importorskip("scipy.special")

EXACT = {
    "digamma": special.digamma, "special_erfcx": special.erfcx, "i0": special.i0,
    "special_i0e": special.i0e, "special_i1": special.i1, "special_i1e": special.i1e,
    "special_bessel_j0": special.j0, "special_bessel_j1": special.j1,
    "special_bessel_y0": special.y0, "special_bessel_y1": special.y1,
    "special_modified_bessel_k0": special.k0, "special_modified_bessel_k1": special.k1,
    "special_scaled_modified_bessel_k0": special.k0e,
    "special_scaled_modified_bessel_k1": special.k1e, "special_ndtri": special.ndtri,
    "special_spherical_bessel_j0": lambda x: special.spherical_jn(0, x),
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_trigamma_is_accurate_and_has_infinite_poles(dtype: torch.dtype) -> None:
    x = inputs(dtype)[torch.isfinite(inputs(dtype))]
    lowered = Lowered("c")
    call = captured(lambda x: torch.ops.aten.polygamma(1, x), 1)
    (found,) = lowered.compile(call, [x])(x)
    assert not lowered.library
    exact = torch.from_numpy(special.polygamma(1, x.double().numpy())).to(dtype)
    inside = torch.isfinite(exact) & (x.double().frac() != 0)
    rtol = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(found[inside], exact[inside], rtol=rtol, atol=0)
    assert (found[(x <= 0) & (x.double().frac() == 0)] == torch.inf).all()


@INTERPRETED
def test_kernels_in_triton_are_those_of_the_reference() -> None:
    check(functions, inputs(torch.float32), rtol=1e-5, atol=1e-5)
