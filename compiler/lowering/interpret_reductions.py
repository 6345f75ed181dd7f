"""Reductions and scans of the reference interpreter, over the last axes of an array.

Sums are numpy's, in pairs along rows that are made dense before: their error grows with the
logarithm of the count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ctk.compiler.lowering.interpret_ops import Array
from ctk.compiler.lowering.ir import ReduceKind, ScanKind


def reduced(kind: ReduceKind, values: Array, axes: int) -> tuple[Array, ...]:
    """Return the results of a reduction over the last axes: one, or two for some kinds.

    Of no values: sum, mean and m2 are 0, a product 1, `any` False, `all` True; `max` and `min` are
    the least and the largest value of the type, at position 0.
    """
    kept = values.shape[: values.ndim - axes]
    count = math.prod(values.shape[values.ndim - axes :])
    rows = np.ascontiguousarray(values).reshape((*kept, count))
    with np.errstate(all="ignore"):
        return _REDUCTIONS[kind](rows)


def scanned(kind: ScanKind, values: Array, axes: int) -> Array:
    """Return the running results along the last axes, in row-major order."""
    kept = values.shape[: values.ndim - axes]
    count = math.prod(values.shape[values.ndim - axes :])
    rows = np.ascontiguousarray(values).reshape((*kept, count))
    with np.errstate(all="ignore"):
        return _SCANS[kind].accumulate(rows, axis=-1, dtype=rows.dtype).reshape(values.shape)


def _least(rows: Array) -> Any:
    if rows.dtype.kind == "f":
        return -np.inf
    return False if rows.dtype.kind == "b" else np.iinfo(rows.dtype).min


def _greatest(rows: Array) -> Any:
    if rows.dtype.kind == "f":
        return np.inf
    return True if rows.dtype.kind == "b" else np.iinfo(rows.dtype).max


def _sum(rows: Array) -> tuple[Array]:
    return (np.asarray(np.add.reduce(rows, axis=-1, dtype=rows.dtype)),)


def _max(rows: Array) -> tuple[Array]:
    return (np.asarray(np.maximum.reduce(rows, axis=-1, initial=_least(rows))),)


def _min(rows: Array) -> tuple[Array]:
    return (np.asarray(np.minimum.reduce(rows, axis=-1, initial=_greatest(rows))),)


def _first(where: Callable[..., Any], best: Callable[[Array], tuple[Array]]) -> Callable[..., Any]:
    def found(rows: Array) -> tuple[Array, Array]:
        value = best(rows)[0]
        if rows.shape[-1] == 0:
            return value, np.zeros(value.shape, np.int64)
        return value, np.asarray(where(rows, axis=-1))

    return found


def _mean_m2(rows: Array) -> tuple[Array, Array]:
    count = rows.shape[-1]
    if count == 0:
        zero = np.zeros(rows.shape[:-1], rows.dtype)
        return zero, zero
    mean = (_sum(rows)[0] / rows.dtype.type(count))[..., None]
    return mean[..., 0], _sum((rows - mean) ** 2)[0]


_REDUCTIONS: Mapping[ReduceKind, Callable[[Array], tuple[Array, ...]]] = {
    "sum": _sum,
    "prod": lambda rows: (np.asarray(np.multiply.reduce(rows, axis=-1, dtype=rows.dtype)),),
    "max": _max,
    "min": _min,
    "any": lambda rows: (np.asarray(np.any(rows, axis=-1)),),
    "all": lambda rows: (np.asarray(np.all(rows, axis=-1)),),
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
