"""The vocabulary of the loop IR in numpy: the meaning of each operation, reduction and scan.

Functions of floats are computed in float64 and rounded to their type, so that they are as accurate
as possible. A bfloat16 is a float32 here whose last 16 bits are zero: numpy has no such type.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch

from ctk.compiler.lowering.ir import Dtype, ReduceKind, ScanKind

Array: TypeAlias = np.ndarray[Any, Any]

_TYPES: Mapping[Dtype, Any] = {
    torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16,
    torch.bfloat16: np.float32, torch.bool: np.bool_, torch.uint8: np.uint8, torch.int8: np.int8,
    torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64,
}  # fmt: skip


def compute(name: str, args: list[Array], dtype: Dtype) -> Array:
    """Return an operation of the vocabulary on each element."""
    with np.errstate(all="ignore"):
        if name == "cast":
            return convert(args[0], dtype)
        if name in _IN_FLOAT64:
            return convert(_IN_FLOAT64[name](*(arg.astype(np.float64) for arg in args)), dtype)
        return convert(_DIRECT[name](*args), dtype)


def convert(values: Array, dtype: Dtype) -> Array:
    """Return values converted to a type, as torch converts."""
    if dtype == torch.bfloat16:
        return round_bfloat16(values.astype(np.float32))
    wanted = _TYPES[dtype]
    with np.errstate(all="ignore"):
        if dtype == torch.bool:
            return np.asarray(values != 0)
        if values.dtype.kind == "f" and dtype == torch.float16:
            return values.astype(np.float32).astype(np.float16)
        if values.dtype.kind == "f" and dtype in (torch.uint8, torch.int8, torch.int16):
            return values.astype(np.int64).astype(wanted)
        return np.asarray(values).astype(wanted, copy=False)


def round_bfloat16(values: Array) -> Array:
    """Return float32 values rounded to the nearest bfloat16, halves to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(values), values, rounded.view(np.float32).reshape(values.shape))


def _is_float(x: Array) -> bool:
    return x.dtype.kind == "f"


def _floor_mod(x: Array, y: Array) -> Array:
    """Return the remainder of a division that rounds down, with torch's sign of zero."""
    if not _is_float(x):
        return np.mod(x, y)
    rest = np.fmod(x, y)
    return np.where((rest != 0) & ((y < 0) != (rest < 0)), rest + y, rest)


def _truncated(x: Array, y: Array) -> Array:
    if _is_float(x):
        return np.trunc(x / y)
    quotient = np.floor_divide(x, y)
    return np.where((quotient * y != x) & ((x < 0) != (y < 0)) & (y != 0), quotient + 1, quotient)


def _shift(x: Array, by: Array, *, left: bool) -> Array:
    width = x.dtype.itemsize * 8
    inside = (by >= 0) & (by < width)
    safe = np.where(inside, by, 0).astype(x.dtype)
    if left:
        return np.where(inside, x << safe, 0)
    return np.where(inside, x >> safe, np.where(x < 0, -1, 0).astype(x.dtype))


def _rounding(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x) if _is_float(x) else x


def _by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy().reshape(x.shape)


_MULTIPLIERS = np.array((0xD2511F53, 0xCD9E8D57), np.uint64)
_BUMPS = np.array((0x9E3779B9, 0xBB67AE85), np.uint64)
_WORD, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def philox(seed: Array, offset: Array, lane: Array) -> Array:
    """Return words of Philox4x32-10 (its description is in passes/joint/philox.py)."""
    key, counter = seed.astype(np.int64).view(np.uint64), offset.astype(np.int64).view(np.uint64)
    key, counter, word = np.broadcast_arrays(key, counter, lane % 4)
    k0, k1 = key & _WORD, key >> _HALF
    zero = np.zeros_like(counter)
    c = (counter & _WORD, counter >> _HALF, zero, zero)
    for _ in range(10):
        p0, p1 = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]
        c = ((p1 >> _HALF) ^ c[1] ^ k0, p1 & _WORD, (p0 >> _HALF) ^ c[3] ^ k1, p0 & _WORD)
        k0, k1 = (k0 + _BUMPS[0]) & _WORD, (k1 + _BUMPS[1]) & _WORD
    return np.choose(word, c).astype(np.int64)


_DIRECT: Mapping[str, Callable[..., Any]] = {
    "add": np.add, "sub": lambda x, y: x - y, "mul": np.multiply,
    "neg": np.negative, "abs": np.abs, "maximum": np.maximum, "minimum": np.minimum,
    "div": np.true_divide, "floordiv": np.floor_divide, "truncdiv": _truncated,
    "mod": _floor_mod, "fmod": np.fmod, "reciprocal": lambda x: np.ones_like(x) / x,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shl": lambda x, by: _shift(x, by, left=True),
    "shr": lambda x, by: _shift(x, by, left=False),
    "floor": _rounding(np.floor), "ceil": _rounding(np.ceil), "trunc": _rounding(np.trunc),
    "round": _rounding(np.rint),
    "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
    "signbit": lambda x: np.signbit(x) if _is_float(x) else x < 0,
    "copysign": np.copysign, "isnan": np.isnan, "isinf": np.isinf, "nextafter": np.nextafter,
    "sqrt": np.sqrt,
    "where": np.where, "philox": philox,
}  # fmt: skip
"""Computed in the type of the operands."""

_IN_FLOAT64: Mapping[str, Callable[..., Any]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power, "hypot": np.hypot, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "erf": _by_torch(torch.erf),
    "erfc": _by_torch(torch.erfc), "erfinv": _by_torch(torch.erfinv),
    "lgamma": _by_torch(torch.lgamma), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip

OPERATIONS = frozenset((*_DIRECT, *_IN_FLOAT64, "cast"))
"""All of the vocabulary; a test holds it to that."""


def reduced(kind: ReduceKind, values: Array, axes: int) -> tuple[Array, ...]:
    """Return the results of a reduction over the last axes: one, or two for some kinds.

    Of no values: sum, mean and m2 are 0, a product 1, `any` False, `all` True; `max` and `min` are
    the least and the largest value of the type, at position 0.
    """
    with np.errstate(all="ignore"):
        results = _REDUCTIONS[kind](_rows(values, axes))
    return tuple(map(np.asarray, results if isinstance(results, tuple) else (results,)))


def scanned(kind: ScanKind, values: Array, axes: int) -> Array:
    """Return the running results along the last axes, in row-major order."""
    with np.errstate(all="ignore"):
        found = _SCANS[kind].accumulate(_rows(values, axes), axis=-1, dtype=values.dtype)
    return found.reshape(values.shape)


def _rows(values: Array, axes: int) -> Array:
    """Return values with the last axes as one, dense in memory.

    numpy adds up dense rows in pairs: the error of a sum grows with the logarithm of the count.
    """
    kept = values.shape[: values.ndim - axes]
    return np.ascontiguousarray(values).reshape((*kept, math.prod(values.shape[len(kept) :])))


def _sum(rows: Array) -> Array:
    return np.asarray(np.add.reduce(rows, axis=-1, dtype=rows.dtype, initial=0))


def _extreme(function: np.ufunc, *, greatest: bool) -> Callable[[Array], Array]:
    """Return the reduction by `maximum` or `minimum`; of no values the limit of the type."""

    def reduce(rows: Array) -> Array:
        limit: Any = greatest
        if rows.dtype.kind == "f":
            limit = np.inf if greatest else -np.inf
        elif rows.dtype.kind != "b":
            limit = np.iinfo(rows.dtype).max if greatest else np.iinfo(rows.dtype).min
        return function.reduce(rows, axis=-1, initial=limit)

    return reduce


_max, _min = _extreme(np.maximum, greatest=False), _extreme(np.minimum, greatest=True)


def _first(where: Callable[..., Any], best: Callable[[Array], Array]) -> Callable[..., Any]:
    def find(rows: Array) -> tuple[Array, Array]:
        value = np.asarray(best(rows))
        return value, where(rows, axis=-1) if rows.shape[-1] else np.zeros(value.shape, np.int64)

    return find


def _mean_m2(rows: Array) -> tuple[Array, Array]:
    count = rows.shape[-1]
    if count == 0:
        zero = np.zeros(rows.shape[:-1], rows.dtype)
        return zero, zero
    mean = (_sum(rows) / rows.dtype.type(count))[..., None]
    return mean[..., 0], _sum((rows - mean) ** 2)


_REDUCTIONS: Mapping[ReduceKind, Callable[[Array], Any]] = {
    "sum": _sum,
    "prod": lambda rows: np.multiply.reduce(rows, axis=-1, dtype=rows.dtype),
    "max": _max,
    "min": _min,
    "any": lambda rows: np.any(rows, axis=-1),
    "all": lambda rows: np.all(rows, axis=-1),
    "argmax": _first(np.argmax, _max),
    "argmin": _first(np.argmin, _min),
    "mean_m2": _mean_m2,
}

_SCANS: Mapping[ScanKind, Any] = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "logsumexp": np.logaddexp,
}
