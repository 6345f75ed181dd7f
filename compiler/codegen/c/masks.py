"""Masks of SIMD lanes as integers: comparisons, and operations that a compiler folds into one.

    table[x > 0], table[1 - (x > 0)], table[(x > 0) ^ (y > 0)]

GCC 12 loads numbers of 32 bits at such positions from wrong places in a SIMD loop with AVX-512. A
constant added to a mask, or a factor, becomes part of the address, and the mask remains. The sum
of two masks is a vector of integers, from which loads are right.
"""

import torch

from ctk.compiler.lowering.ir import Const, Op, Position, Value


def is_mask(value: Value) -> bool:
    """Return whether a value may be computed from comparisons and constants as a mask."""
    return _is_mask(value, {}) is True


def _is_mask(value: Value, known: dict[int, bool | None]) -> bool | None:
    """Return True for a mask, None for a constant of the loop, False for a vector of numbers."""
    if value.dtype == torch.bool:
        return True
    if isinstance(value, (Const, Position)):
        return None
    if not isinstance(value, Op):
        return False
    if id(value) not in known:
        known[id(value)] = _of_operation(value, known)
    return known[id(value)]


def _of_operation(op: Op, known: dict[int, bool | None]) -> bool | None:
    if op.name == "where":
        low, high = op.args[1:]
        if isinstance(low, Const) and isinstance(high, Const):
            return abs(low.value - high.value) == 1
    kinds = [_is_mask(arg, known) for arg in op.args]
    if False in kinds or (op.name in ("add", "sub") and kinds.count(True) > 1):
        return False
    return True if True in kinds else None
