"""The functions of generated C are as accurate as docs/numerics.md says, over all of float32."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from ctk.compiler.codegen.c.kernel_printer import KernelCode
from ctk.compiler.codegen.c.libraries import load

scipy_special = pytest.importorskip("scipy.special")

ULP = {
    "exp": (np.exp, 1.1), "exp2": (np.exp2, 1.1), "expm1": (np.expm1, 1.6), "log": (np.log, 1.0),
    "log2": (np.log2, 1.3), "log10": (np.log10, 2.0), "log1p": (np.log1p, 1.6),
    "tanh": (np.tanh, 2.7), "sigmoid": (scipy_special.expit, 2.5), "erf": (scipy_special.erf, 1.2),
    "sin": (np.sin, 1.7), "cos": (np.cos, 1.7), "rsqrt": (lambda x: 1 / np.sqrt(x), 1.6),
    "erfinv": (scipy_special.erfinv, 0.6),
}  # fmt: skip

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2.0**-149, -(2.0**-149), 88.72, 89, -103.9]


def run(name: str) -> Callable[[np.ndarray, np.ndarray], None]:
    """Return `NAME_f32` over arrays, compiled."""
    body = f"    for (int64_t i = 0; i < n; ++i) y[i] = {name}_f32(x[i]);"
    head = f"void run_{name}(float* restrict y, const float* restrict x, int64_t n) {{"
    code = KernelCode(f"run_{name}", f"{head}\n    #pragma omp simd\n{body}\n}}", ())
    (loaded,) = load([code], flags=())
    function = loaded.library.handle[loaded.name]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    function.restype = None
    return lambda x, y: function(y.ctypes.data, x.ctypes.data, x.size)


def inputs(count: int) -> np.ndarray:
    """Return numbers of all exponents, some near zero, and the special ones."""
    generator = np.random.default_rng(9)
    bits = generator.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32)
    near = [generator.uniform(-width, width, count).astype(np.float32) for width in (1, 10, 110)]
    return np.concatenate((bits.view(np.float32), *near, np.float32(SPECIAL)))


def check(name: str, count: int) -> None:
    function, limit = ULP[name]
    x = inputs(count)
    found = np.empty_like(x)
    run(name)(x, found)
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        nearest = exact.astype(np.float32)
        finite = np.isfinite(nearest)
        gap = np.spacing(np.abs(nearest)).astype(np.float64)
        off = np.abs(found.astype(np.float64) - exact) / gap
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    infinite = np.isinf(nearest)
    np.testing.assert_array_equal(found[infinite], nearest[infinite])
    assert off[finite].max() <= limit, x[finite][off[finite].argmax()]


@pytest.mark.parametrize("name", ["exp", "erf"])
def test_functions_are_accurate(name: str) -> None:
    check(name, 50_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", ULP)
def test_functions_are_accurate_everywhere(name: str) -> None:
    check(name, 1_000_000)


@pytest.mark.parametrize("name", ["tanh", "expm1", "log1p", "sin", "erf"])
@pytest.mark.slow
def test_odd_functions_keep_the_sign_of_zero(name: str) -> None:
    found = np.empty(2, np.float32)
    run(name)(np.array([0.0, -0.0], np.float32), found)
    assert list(np.signbit(found)) == [False, True]
