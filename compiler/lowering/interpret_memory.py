"""Memory of the reference interpreter: flat tensors of torch, read and written by numpy.

The bits of a bfloat16, which numpy does not have, are read as integers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ctk.compiler.lowering.interpret_ops import Array, convert
from ctk.compiler.lowering.ir import Dtype, StoreMode

WIDER = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64}
"""The type of a float when everything is computed in float64."""

_COMBINE: Mapping[StoreMode, Any] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


@dataclass(slots=True, eq=False)
class Memory:
    """Flat memory of one buffer.

    Attributes:
        written: A mask of the written elements; None if all are.
        owner: The buffer whose memory it was first; "" if its own.
    """

    tensor: torch.Tensor
    written: Array | None = None
    owner: str = ""
    _cells: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        tensor = self.tensor.detach()
        bits = tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor
        self._cells = bits.numpy()

    def __len__(self) -> int:
        return len(self._cells)

    @property
    def dtype(self) -> Dtype:
        return self.tensor.dtype

    def read(self, places: Array) -> Array:
        """Return elements; a bfloat16 is a float32."""
        return self._values(self._cells[places])

    def write(self, places: Array, values: Array, mode: StoreMode) -> None:
        """Write elements, one after the other where places are the same."""
        if self.written is not None:
            self.written[places] = True
        if mode == "set":
            self._cells[places] = self._bits(convert(values, self.dtype))
            return
        everything = self._values(self._cells)
        with np.errstate(all="ignore"):
            _COMBINE[mode].at(everything, places, convert(values, self.dtype))
        touched = np.unique(places)
        self._cells[touched] = self._bits(convert(everything[touched], self.dtype))

    def taken(self, dtype: Dtype, owner: str) -> Memory:
        """Return this memory for another buffer, all of it unwritten."""
        tensor = self.tensor.view(dtype)
        return Memory(tensor, np.zeros(len(tensor), np.bool_), self.owner or owner)

    def lose(self) -> None:
        """Mark all elements unwritten, because another buffer was written here."""
        self.written = np.zeros(len(self), np.bool_)

    def _values(self, cells: Array) -> Array:
        if self.dtype != torch.bfloat16:
            return np.asarray(cells)
        return (np.asarray(cells).astype(np.uint32) << np.uint32(16)).view(np.float32)

    def _bits(self, values: Array) -> Array:
        if self.dtype != torch.bfloat16:
            return values
        return (np.ascontiguousarray(values).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def memory_of(tensor: torch.Tensor) -> Memory:
    """Return the memory of a tensor from its first element to its last, shared with it."""
    extent = 0
    if tensor.numel():
        pairs = zip(tensor.shape, tensor.stride(), strict=True)
        extent = sum((size - 1) * stride for size, stride in pairs) + 1
    flat = torch.as_strided(tensor.detach(), (extent,), (1,), tensor.storage_offset())
    return Memory(flat)


def unwritten(count: int, dtype: Dtype) -> Memory:
    """Return unwritten memory, filled with values that spoil a result."""
    filling = math.nan if dtype.is_floating_point else 0x5A  # a bool is True
    return Memory(torch.full((count,), filling, dtype=dtype), np.zeros(count, np.bool_))
