"""The functions of generated C are as accurate as docs/numerics.md says, over all floats."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.codegen.c.libraries import load

special = pytest.importorskip("scipy.special")
mpmath = pytest.importorskip("mpmath")

ULP = {
    "exp": (1.1, 1.1), "exp2": (1.1, 1.1), "expm1": (1.6, 1.7), "log": (1.0, 1.0),
    "log2": (1.3, 1.0), "log10": (2.0, 1.0), "log1p": (1.6, 1.6), "tanh": (2.7, 2.7),
    "sigmoid": (2.5, 2.5), "erf": (1.2, 1.5), "erfc": (3.6, 3.6), "erfinv": (3.2, 4.0),
    "sin": (2.1, 2.2), "cos": (2.1, 2.2), "tan": (2.6, 2.6), "asin": (2.4, 2.4),
    "acos": (1.2, 1.2), "atan": (1.4, 2.0), "sinh": (1.7, 1.7), "cosh": (1.6, 1.6),
    "asinh": (2.2, 2.2), "acosh": (3.0, 3.0), "atanh": (2.5, 2.5), "rsqrt": (1.6, 1.6),
    "lgamma": (0.6, 4.0),
    "atan2": (1.9, 2.0), "hypot": (1.1, 1.1), "pow": (1.1, 1.1), "fmod": (0, 0),
    "nextafter": (0, 0),
}  # fmt: skip
"""The limits of each function in float32 and in float64."""

OF_TWO = ("atan2", "hypot", "pow", "fmod", "nextafter")


def _lgamma(x: np.ndarray) -> np.ndarray:
    """Return lgamma; that of scipy has other values at -inf and for subnormal numbers."""
    found = special.gammaln(np.where(x == -np.inf, np.inf, x))
    return np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), found)


def _nextafter(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return the next number in the narrow type; `x` and `z` are in the wide one."""
    dtype = np.float32 if x.dtype == np.float64 else np.float64
    return np.nextafter(x.astype(dtype), z.astype(dtype)).astype(x.dtype)


EXACT: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ULP if hasattr(np, name)},
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    **{name: getattr(special, name) for name in ("erf", "erfc")},
    "nextafter": _nextafter,
    "erfinv": lambda x: np.copysign(special.erfinv(x), x),
    "lgamma": _lgamma,
}

PRECISE = {
    "erf": mpmath.erf, "erfc": mpmath.erfc, "erfinv": mpmath.erfinv,
    "lgamma": lambda x: mpmath.loggamma(x).real,
}  # fmt: skip
"""Functions that numpy has not in more than 64 bits."""

TYPES = {"f32": (np.float32, np.float64, "float"), "f64": (np.float64, np.longdouble, "double")}

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, 3, -3, 1e-320, 2.0**-149, 88.72]

Run = Callable[..., None]


@pytest.fixture(scope="module")
def functions() -> dict[str, Run]:
    """Return `NAME_TYPE` over arrays, all compiled at once."""
    codes: list[KernelCode] = []
    for name in ULP:
        for suffix, (_, _, ctype) in TYPES.items():
            args = "x[i], z[i]" if name in OF_TWO else "x[i]"
            arrays = f"{ctype}* restrict y, const {ctype}* restrict x, const {ctype}* restrict z"
            loop = f"for (int64_t i = 0; i < n; ++i) y[i] = {name}_{suffix}({args});"
            text = f"void run_{name}_{suffix}({arrays}, int64_t n) {{\n#pragma omp simd\n{loop}\n}}"
            codes.append(KernelCode(f"run_{name}_{suffix}", text, ()))
    return {
        each.name[4:]: _caller(each.library.handle[each.name]) for each in load(codes, flags=())
    }


def _caller(function: Any) -> Run:
    function.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int64]
    function.restype = None

    def call(y: np.ndarray, x: np.ndarray, z: np.ndarray) -> None:
        function(y.ctypes.data, x.ctypes.data, z.ctypes.data, x.size)

    return call


def inputs(dtype: type, count: int) -> np.ndarray:
    """Return numbers of all exponents, some near zero and near one, and the special ones."""
    generator = np.random.default_rng(9)
    size = np.dtype(dtype).itemsize
    bits = np.frombuffer(generator.bytes(count * size), dtype)
    near = [generator.uniform(-width, width, count).astype(dtype) for width in (1, 3, 10, 110)]
    close = generator.uniform(-1, 1, count) * 2.0 ** -generator.uniform(1, 7 * size - 4, count)
    beside = [(middle + close).astype(dtype) for middle in (-1, 1, 2)]
    with np.errstate(all="ignore"):
        return np.concatenate((bits, *near, *beside, np.array(SPECIAL).astype(dtype)))


def operands(dtype: type, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two such arrays, and all pairs of special numbers."""
    x = inputs(dtype, count)
    z = np.random.default_rng(10).permutation(x)
    ends = x[-len(SPECIAL) :]
    pairs = np.repeat(ends, len(ends)), np.tile(ends, len(ends))
    return np.concatenate((x, pairs[0])), np.concatenate((z, pairs[1]))


def check(functions: dict[str, Run], name: str, suffix: str, count: int) -> None:
    dtype, wide, _ = TYPES[suffix]
    wide = np.float64 if name in PRECISE else wide
    x, z = operands(dtype, count)
    found = np.empty_like(x)
    functions[f"{name}_{suffix}"](found, x, z)
    with np.errstate(all="ignore"):
        numbers = (x.astype(wide), z.astype(wide))[: 1 + (name in OF_TWO)]
        exact = EXACT[name](*numbers)
        nearest = exact.astype(dtype)
        infinite = np.isinf(nearest)
        np.testing.assert_array_equal(found[infinite], nearest[infinite])
        np.testing.assert_array_equal(np.isnan(found), np.isnan(nearest))
        zeros = nearest == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(nearest[zeros]))
        gap = np.spacing(np.abs(nearest)).astype(wide)
        off = np.abs(found.astype(wide) - exact) / gap
    counted = np.flatnonzero(np.isfinite(nearest) & _is_conditioned(name, x))
    if name in PRECISE and suffix == "f64":
        counted = counted[:: max(1, len(counted) // 300)]
        off[counted] = [_precise_ulp(name, x[i], found[i], gap[i]) for i in counted]
    worst = counted[off[counted].argmax()]
    assert off[worst] <= ULP[name][suffix == "f64"], (x[worst], z[worst], off[worst])


def _is_conditioned(name: str, x: np.ndarray) -> np.ndarray:
    """Return where a function is not next to a root that floats cannot write."""
    return (x > 0) | (x < -40) if name == "lgamma" else np.full(x.shape, True)


def _precise_ulp(name: str, x: float, found: float, gap: float) -> float:
    if abs(x) > 30 or (name == "erfinv" and abs(x) >= 1):
        return 0
    with mpmath.workdps(40):
        exact = PRECISE[name](mpmath.mpf(float(x)))
        return float(abs(mpmath.mpf(float(found)) - exact) / mpmath.mpf(float(gap)))


@pytest.mark.parametrize("suffix", TYPES)
@pytest.mark.parametrize("name", ULP)
def test_functions_are_accurate(functions, name: str, suffix: str) -> None:
    check(functions, name, suffix, 2_000)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", TYPES)
@pytest.mark.parametrize("name", ULP)
def test_functions_are_accurate_everywhere(functions, name: str, suffix: str) -> None:
    check(functions, name, suffix, 100_000)


@pytest.mark.parametrize("suffix", TYPES)
def test_vectors_with_one_rare_number_are_right(functions, suffix: str) -> None:
    dtype = TYPES[suffix][0]
    x = np.full(67, 0.75, dtype)
    x[[5, 40, 66]] = [1e30, -3e20, np.inf]
    found = np.empty_like(x)
    with np.errstate(all="ignore"):
        for name in ("sin", "cos", "tan"):
            functions[f"{name}_{suffix}"](found, x, x)
            np.testing.assert_allclose(found, EXACT[name](x.astype(np.float64)), rtol=1e-6)
        y = np.full(67, 0.5, dtype)
        functions[f"fmod_{suffix}"](found, x, y)
        np.testing.assert_array_equal(found, np.fmod(x, y))
