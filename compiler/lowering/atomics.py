"""Atomic operations of GPUs, which decide whether a scatter may be a kernel."""

import torch

from ctk.compiler.lowering.ir import Dtype, StoreMode
from ctk.compiler.sizes.size_guards import NotLowered

_TYPES = frozenset((torch.float32, torch.float64, torch.int32, torch.int64))
_ADDED = _TYPES | {torch.float16, torch.bfloat16}


def is_atomic(mode: StoreMode, dtype: Dtype) -> bool:
    """Return whether a GPU combines values of a type at one place in one step."""
    return dtype in _ADDED if mode == "add" else mode in ("max", "min") and dtype in _TYPES


def require_atomic(device: torch.device, mode: StoreMode, dtype: Dtype) -> None:
    """Refuse a scatter that a GPU cannot do, or cannot do in the deterministic order asked for.

    Raises:
        NotLowered: One of the two.
    """
    if mode == "set" or device.type == "cpu":
        return
    if not is_atomic(mode, dtype):
        raise NotLowered(f"a GPU has no atomic {mode} of {dtype}")
    if dtype.is_floating_point and torch.are_deterministic_algorithms_enabled():
        raise NotLowered("the order of atomic sums differs, and algorithms are to be deterministic")
