"""Bounds of integers that a kernel computes: a position within its dimension needs no check."""

import math

import torch

from ctk.compiler.lowering.ir import Const, Op, Position, Value

Bounds = tuple[float, float]
"""The least and the largest value; infinite if not known."""

_UNKNOWN = (-math.inf, math.inf)

_DEEPEST = 200
"""Operations within operations that are followed: more than a search of 2**24 numbers has."""


def bounds_of(value: Value) -> Bounds:
    """Return the bounds of a constant, or of a sum, an extreme or a choice of bounded integers."""
    return _Bounding().of(value, _DEEPEST)


class _Bounding:
    """Follows each value once."""

    def __init__(self) -> None:
        self.known: dict[int, Bounds] = {}

    def of(self, value: Value, depth: int) -> Bounds:
        if value.dtype == torch.bool:
            return 0, 1
        if value.dtype.is_floating_point or not depth:
            return _UNKNOWN
        if isinstance(value, Const):
            return int(value.value), int(value.value)
        if isinstance(value, Position):
            number = value.index.number
            return _UNKNOWN if number is None else (number, number)
        if not isinstance(value, Op) or value.name not in _FOLLOWED:
            return _UNKNOWN
        if id(value) not in self.known:
            bounds, limits = self._of_operation(value, depth - 1), torch.iinfo(value.dtype)
            fits = limits.min <= bounds[0] and bounds[1] <= limits.max
            self.known[id(value)] = bounds if fits else _UNKNOWN
        return self.known[id(value)]

    def _of_operation(self, op: Op, depth: int) -> Bounds:
        each = [self.of(arg, depth) for arg in op.args]
        if op.name == "where":
            each = each[2:] if self._never_holds(op.args[0], depth) else each[1:]
        lows, highs = zip(*each, strict=True)
        if op.name == "add":
            return sum(lows), sum(highs)
        low = max(lows) if op.name == "maximum" else min(lows)
        return low, min(highs) if op.name == "minimum" else max(highs)

    def _never_holds(self, condition: Value, depth: int) -> bool:
        """Return whether a comparison is known to be false: of a position that is not negative."""
        if not isinstance(condition, Op) or condition.name != "lt":
            return False
        left, right = (self.of(arg, depth) for arg in condition.args)
        return left[0] >= right[1]


_FOLLOWED = ("add", "where", "minimum", "maximum", "cast")
