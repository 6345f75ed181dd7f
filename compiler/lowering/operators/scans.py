"""Lowerings of running sums, products and extremes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, cast
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.axes import axis_of
from ctk.compiler.lowering.operators.promotion import operands

aten = torch.ops.aten


def _running(kind: Any) -> Callable[..., Array]:
    """Return the lowering of a running sum or product; integers have 64 bits."""

    def lower(b: Builder, x: Array, dim: int, *, dtype: Any = None) -> Array:
        result = dtype or (x.dtype if x.dtype.is_floating_point else torch.int64)
        wide = b.accumulated(cast(x, result))
        return b.scan(kind, wide, axis_of(x, dim)) if x.shape else wide

    return lower


def _logcumsumexp(b: Builder, x: Array, dim: int) -> Array:
    wide = b.accumulated(*operands(x, to_float=True))
    return b.scan("logsumexp", wide, axis_of(x, dim)) if x.shape else wide


TABLE: Mapping[object, Callable[..., Array]] = {
    aten.cumprod.default: _running("prod"),
    aten.cumsum.default: _running("sum"),
    aten.logcumsumexp.default: _logcumsumexp,
}
