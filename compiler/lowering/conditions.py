"""Decide conditions on positions, and choices by them, as far as their difference is known."""

import torch

from ctk.compiler.lowering.ir import Const, Guarded, Op, Position, Value
from ctk.compiler.sizes.index import Index, as_index, is_nonnegative

COMPARED = ("lt", "le", "gt", "ge")


def decided(value: Value) -> Value | None:
    """Return the known value of a condition, or of a choice by one."""
    if isinstance(value, Guarded) and isinstance(value.condition, Const):
        return value.value if value.condition.value else value.other
    if not isinstance(value, Op):
        return None
    if value.name in COMPARED:
        return _compared(value)
    if value.name == "where" and isinstance(value.args[0], Const):
        return value.args[1] if value.args[0].value else value.args[2]
    if value.name == "not" and isinstance(value.args[0], Const) and value.dtype == torch.bool:
        return Const(not value.args[0].value, torch.bool)
    if value.name in ("and", "or") and value.dtype == torch.bool:
        return _joined(value)
    return None


def _compared(value: Op) -> Value | None:
    apart = apart_of(value)
    if apart is None:
        return None
    strict = 1 if value.name in ("lt", "gt") else 0
    if is_nonnegative(apart - strict):
        return Const(value=True, dtype=torch.bool)
    if is_nonnegative(-apart - (1 - strict)):
        return Const(value=False, dtype=torch.bool)
    return None


def _joined(value: Op) -> Value | None:
    for one, other in (value.args, value.args[::-1]):
        if isinstance(one, Const):
            if bool(one.value) == (value.name == "and"):
                return other
            return one
    return None


def apart_of(value: Op) -> Index | None:
    """Return a difference, not negative where `le` or `ge` holds, positive for `lt` and `gt`."""
    left, right = (_number(arg) for arg in value.args)
    if left is None or right is None:
        return None
    return right - left if value.name in ("lt", "le") else left - right


def _number(value: Value) -> Index | None:
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Const) and not value.dtype.is_floating_point:
        return as_index(int(value.value))
    return None
