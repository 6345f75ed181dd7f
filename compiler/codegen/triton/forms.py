"""Forms of values that are printed in another way than operation by operation."""

from __future__ import annotations

import torch

from ctk.compiler.lowering.ir import Const, Op, Position, Value
from ctk.compiler.lowering.vocabulary import COMPARISON

_FOLDED = (torch.float32, torch.float64)


def constant_of(value: Value) -> Const | None:
    """Return a value as a number if it is one: a size, perhaps converted."""
    if isinstance(value, Const):
        return value
    if isinstance(value, Position) and value.index.number is not None:
        return Const(value.index.number, value.dtype)
    if isinstance(value, Op) and value.name == "cast" and value.dtype in _FOLDED:
        inner = constant_of(value.args[0])
        if inner is not None and not inner.dtype.is_floating_point:
            return Const(float(inner.value), value.dtype)
    return None


def compares_positions(value: Value) -> bool:
    """Return whether a value is a comparison of positions, which need not be in 64 bits."""
    if not isinstance(value, Op) or value.name not in COMPARISON:
        return False
    return all(isinstance(arg, Position) for arg in value.args)


def one_plus(value: Value) -> Op | None:
    """Return the curve of `erf(x) + 1` or `tanh(x) + 1`."""
    if not isinstance(value, Op) or value.name != "add":
        return None
    for curve, other in (value.args, value.args[::-1]):
        number = constant_of(other)
        if isinstance(curve, Op) and curve.name in ("erf", "tanh"):
            return curve if number is not None and number.value == 1 else None
    return None
