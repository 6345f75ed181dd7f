"""Divisions of integers, by vectors of floats, are exact."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest

from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.codegen.c.libraries import load

TYPES = {
    "i8": np.int8, "u8": np.uint8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
}  # fmt: skip

NUMBERS = {
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "truncdiv": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "fmod": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}
"""Of Python's integers, which have no bounds."""


def operands(dtype: type, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return dividends and divisors of all lengths, multiples and their neighbours, and bounds."""
    generator = np.random.default_rng(3)
    bounds = np.iinfo(dtype)
    edges = [bounds.min, bounds.min + 1, bounds.max, bounds.max - 1, 0, 1, 2, 3, 7, bounds.max // 2]
    edges += [-1, -2, -3] if bounds.min else []
    pairs = np.array(np.meshgrid(edges, edges)).reshape(2, -1)
    whole = generator.integers(bounds.min, bounds.max, (2, count), dtype)
    short = whole >> generator.integers(0, bounds.bits, (2, count)).astype(dtype)
    some = [int(a) // (int(b) or 1) * (int(b) or 1) + k % 3 - 1
            for k, (a, b) in enumerate(zip(whole[0], short[1], strict=True))]  # fmt: skip
    near = np.clip(np.array(some, object), bounds.min, bounds.max).astype(dtype)
    a = np.concatenate([pairs[0].astype(dtype), whole[0], short[0], near])
    return a, np.concatenate([pairs[1].astype(dtype), short[1], whole[1], short[1]])


@pytest.fixture(scope="module")
def functions() -> dict[str, Callable[..., None]]:
    codes: list[KernelCode] = []
    for suffix in TYPES:
        ctype = f"{suffix.replace('i', 'int').replace('u8', 'uint8')}_t"
        for name in NUMBERS:
            arrays = f"{ctype}* restrict y, const {ctype}* restrict a, const {ctype}* restrict b"
            loop = "for (int64_t i = 0; i < n; ++i) "
            body = f"{loop}y[i] = {name}_{suffix}(a[i], b[i]);"
            own = f"run_{name}_{suffix}"
            codes.append(
                KernelCode(
                    own, f"void {own}({arrays}, int64_t n) {{\n#pragma omp simd\n{body}\n}}", ()
                )
            )
    found = {each.name[4:]: each.library.handle[each.name] for each in load(codes, flags=())}
    for function in found.values():
        function.argtypes, function.restype = [ctypes.c_void_p] * 3 + [ctypes.c_int64], None
    return found


@pytest.mark.parametrize("suffix", TYPES)
@pytest.mark.parametrize("name", NUMBERS)
def test_divisions(functions, name: str, suffix: str) -> None:
    a, b = operands(TYPES[suffix], 3000)
    found = np.empty_like(a)
    functions[f"{name}_{suffix}"](found.ctypes.data, a.ctypes.data, b.ctypes.data, a.size)
    for x, y, mine in zip(a.tolist(), b.tolist(), found.tolist(), strict=True):
        exact = NUMBERS[name](x, y) if y else 0
        wrapped = int(np.array([exact & (1 << 64) - 1], np.uint64).astype(TYPES[suffix])[0])
        assert mine == wrapped, (x, y)
