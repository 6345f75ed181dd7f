"""Lowerings of reductions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, positions, raised
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.index import product
from ctk.compiler.lowering.operators.axes import axes_of

aten = torch.ops.aten


def _summed(b: Builder, x: Array, dtype: Any) -> Array:
    """Return an array in the type in which it is summed up."""
    result = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
    return cast(cast(x, result), b.accumulator(result))


def _sum(
    b: Builder, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    return b.reduce("sum", _summed(b, x, dtype), axes_of(x, dim), keepdim=keepdim)[0]


def _sum_all(b: Builder, x: Array, *, dtype: Any = None) -> Array:
    return _sum(b, x, None, dtype=dtype)


def _mean(
    b: Builder, x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Array:
    axes = axes_of(x, dim)
    total = b.reduce("sum", _summed(b, x, dtype), axes, keepdim=keepdim)[0]
    count = positions(product([x.shape[axis] for axis in axes]))
    return apply("div", total, cast(count, total.dtype))


def _mean_all(b: Builder, x: Array, *, dtype: Any = None) -> Array:
    return _mean(b, x, None, dtype=dtype)


def _extreme(kind: Any) -> Callable[..., Array]:
    def lowered(b: Builder, x: Array, dim: Sequence[int] = (), keepdim: bool = False) -> Array:
        return b.reduce(kind, raised(x), axes_of(x, dim), keepdim=keepdim)[0]

    return lowered


REDUCTIONS: Mapping[object, Callable[..., Array]] = {
    aten.sum.dim_IntList: _sum,
    aten.sum.default: _sum_all,
    aten.mean.dim: _mean,
    aten.mean.default: _mean_all,
    aten.amax.default: _extreme("max"),
    aten.amin.default: _extreme("min"),
}
