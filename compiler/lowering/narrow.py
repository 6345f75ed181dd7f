"""Simplify values under a condition, by the bounds that it implies for loop variables.

    (neg(x[i0*4 + i1 % 4]) if i1 < 4 else ...)     is     (neg(x[i0*4 + i1]) if i1 < 4 else ...)

Within the guarded value, a loop variable that has 4 <= v < 9 is put as 4 + w with a new w < 5; the
index is simplified, and w is put as v - 4 again. Under `other` the condition does not hold.

Source: `torch/_inductor` simplifies masked indices by their ranges only where it pads. Halide
solves conditions for the loop variable as this does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch

from ctk.compiler.lowering.ir import Const, Guarded, Kernel, Op, Position, Value
from ctk.compiler.lowering.walk import Rewriting, walk
from ctk.compiler.sizes.index import (
    Atom,
    Index,
    IndexLike,
    Indirect,
    Var,
    as_index,
    is_nonnegative,
    of_atom,
)

Bounds: TypeAlias = Mapping[Var, tuple[Index, Index]]
"""For loop variables, the least value, and an exclusive upper bound."""

_MOST = 64
"""The most sets of bounds in a kernel; values under further ones are simplified less."""


def narrowed(kernel: Kernel) -> Kernel:
    """Return a kernel with the indices of its guarded values simplified."""
    if not any(isinstance(value, Guarded) for value in walk(*kernel.statements)):
        return kernel
    return replace(kernel, sweeps=tuple(map(_Narrowing().sweep, kernel.sweeps)))


@dataclass(slots=True)
class _Narrowing(Rewriting):
    """Simplifies values where some bounds hold."""

    bounds: Bounds = field(default_factory=dict[Var, "tuple[Index, Index]"])
    all: dict[object, _Narrowing] = field(default_factory=dict[object, "_Narrowing"])
    _back: dict[Atom, IndexLike] = field(default_factory=dict[Atom, "IndexLike"])

    def __post_init__(self) -> None:
        variables: dict[Var, IndexLike] = {}
        for loop, (low, high) in self.bounds.items():
            narrow = Var(f"{loop.name}'", high - low)
            variables[loop] = of_atom(narrow) + low
            self._back[narrow] = of_atom(loop) - low
        self.variables = variables

    def index(self, index: Index) -> Index:
        """Return an index expression simplified."""
        return Rewriting.index(self, index).replace(self._back.get)

    def _parts(self, value: Guarded) -> tuple[Value, Value, Value]:
        inside = self._under(value.condition, holds=True).value(value.value)
        outside = self._under(value.condition, holds=False).value(value.other)
        return self.value(value.condition), inside, outside

    def _under(self, condition: Value, *, holds: bool) -> _Narrowing:
        bounds = dict(self.bounds)
        for loop, low, high in _facts(condition, holds):
            least, limit = bounds.get(loop, (as_index(0), loop.size))
            least = low if low is not None and is_nonnegative(low - least) else least
            limit = high if high is not None and is_nonnegative(limit - high) else limit
            if (limit - least).number is None or is_nonnegative(limit - least - 1):
                bounds[loop] = least, limit
        if bounds == self.bounds:
            return self
        key = frozenset(bounds.items())
        if key not in self.all and len(self.all) >= _MOST:
            return self
        if key not in self.all:
            self.all[key] = _Narrowing(bounds=bounds, all=self.all)
        return self.all[key]


def _facts(condition: Value, holds: bool) -> Iterator[tuple[Var, Index | None, Index | None]]:
    """Yield loop variables with the least value and the limit that a condition gives them."""
    if not isinstance(condition, Op):
        return
    if condition.name == ("and" if holds else "or"):
        for arg in condition.args:
            yield from _facts(arg, holds)
    elif condition.name == "not":
        yield from _facts(condition.args[0], not holds)
    elif condition.name in ("lt", "le", "gt", "ge"):
        left, right = map(_position, condition.args)
        if left is None or right is None:
            return
        if condition.name in ("gt", "le"):
            left, right = right, left
        is_less = holds == (condition.name in ("lt", "gt"))
        yield from _fact(left - right, is_less)


def _fact(difference: Index, is_less: bool) -> Iterator[tuple[Var, Index | None, Index | None]]:
    """Yield the bound on the one loop variable from `difference < 0`, or from its negation."""
    loops = [atom for atom in difference.atoms if isinstance(atom, (Var, Indirect))]
    loop = loops[0] if len(loops) == 1 else None
    if not isinstance(loop, Var):
        return
    factor = difference.factor_of(loop)
    number = None if factor is None else factor.number
    rest = difference.substitute({loop: 0})
    if number == 1:
        yield (loop, None, -rest) if is_less else (loop, -rest, None)
    elif number == -1:
        yield (loop, rest + 1, None) if is_less else (loop, None, rest + 1)


def _position(value: Value) -> Index | None:
    if isinstance(value, Position) and value.dtype == torch.int64:
        return value.index
    if isinstance(value, Const) and value.dtype == torch.int64:
        return as_index(int(value.value))
    return None
