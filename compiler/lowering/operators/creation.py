"""Lowerings of operators that make tensors of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, constant
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.index import as_index
from ctk.compiler.lowering.sizes import NotLowered

aten = torch.ops.aten


def _full(b: Builder, size: Sequence[Any], value: Any, **_: object) -> Array:
    if not isinstance(value, (bool, int, float)):
        raise NotLowered("its number is known at the call only")
    return constant(value, b.result.dtype, tuple(map(as_index, size)))


CREATION: Mapping[object, Callable[..., Array]] = {
    aten.full.default: _full,
}
