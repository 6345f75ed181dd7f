"""Split loops where a condition on their variable changes, so that no piece has a branch in it.

    for i < 64: out[i] = (a[i] if i < 32 else b[i - 32])
becomes
    for i < 32: out[i] = a[i]
    for i < 32: out[i + 32] = b[i]

This is how concatenations, paddings and rotary embeddings keep their loops simple. A loop that
would fall into more pieces than `PIECES` stays whole, and its condition a branch.
"""

from collections.abc import Iterable, Iterator, Sequence

import torch

from ctk.compiler.lowering.ir import Const, Guarded, Op, Position, Statement, Sweep, Value
from ctk.compiler.lowering.walk import Rewriting, walk
from ctk.compiler.sizes.index import Index, Var, as_index, is_nonnegative, of_atom

PIECES = 6

_COMPARED = ("lt", "le", "gt", "ge")


def pieces(loop: Var, sweeps: Sequence[Sweep]) -> list[tuple[Var, tuple[Sweep, ...]]]:
    """Return loops that together cover a loop around some sweeps, in order."""
    size = loop.size.number
    statements = [statement for sweep in sweeps for statement in sweep.statements]
    points = sorted(set(_points(loop, statements))) if size is not None else []
    inside = [point for point in points if 0 < point < (size or 0)]
    if size is None or not inside or len(inside) >= PIECES:
        return [(loop, tuple(sweeps))]
    bounds = zip((0, *inside), (*inside, size), strict=True)
    return [_piece(loop, sweeps, low, high) for low, high in bounds]


def _piece(
    loop: Var, sweeps: Sequence[Sweep], low: int, high: int
) -> tuple[Var, tuple[Sweep, ...]]:
    part = Var(loop.name, as_index(high - low))
    rewriting = Rewriting({loop: of_atom(part) + low}, decided)
    return part, tuple(map(rewriting.sweep, sweeps))


def decided(value: Value) -> Value | None:
    """Return the known value of a condition, or of a choice by one."""
    if isinstance(value, Guarded) and isinstance(value.condition, Const):
        return value.value if value.condition.value else value.other
    if not isinstance(value, Op):
        return None
    if value.name in _COMPARED:
        return _compared(value)
    if value.name == "where" and isinstance(value.args[0], Const):
        return value.args[1] if value.args[0].value else value.args[2]
    if value.name == "not" and isinstance(value.args[0], Const) and value.dtype == torch.bool:
        return Const(not value.args[0].value, torch.bool)
    if value.name in ("and", "or") and value.dtype == torch.bool:
        return _joined(value)
    return None


def _compared(value: Op) -> Value | None:
    apart = _apart(value)
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


def _apart(value: Op) -> Index | None:
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


def _points(loop: Var, statements: Iterable[Statement]) -> Iterator[int]:
    """Yield the values of a loop variable at which a condition changes."""
    for statement in statements:
        for value in walk(statement):
            apart = _apart(value) if isinstance(value, Op) and value.name in _COMPARED else None
            if apart is None or loop not in apart.atoms:
                continue
            factor = apart.factor_of(loop)
            rest = None if factor is None else (apart - factor * of_atom(loop)).number
            if factor is None or factor.number is None or rest is None:
                continue
            strict = isinstance(value, Op) and value.name in ("lt", "gt")
            yield _changes_at(factor.number, rest - 1 if strict else rest)


def _changes_at(factor: int, rest: int) -> int:
    """Return the least v behind which `factor * v + rest >= 0` differs from before."""
    if factor > 0:
        return -(rest // factor)
    return rest // -factor + 1
