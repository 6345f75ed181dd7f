"""Write out reductions of few numbers, so that the loop around them is the one of SIMD lanes.

    for i < 511: for r < 8: m = max(x[i*4 + r])             a window of 8, every 4
                 out[i] = m
becomes
    for i < 511: out[i] = maximum(maximum(..., x[i*4 + 3]), maximum(x[i*4 + 4], ...))

Each lane reduces one row, as a tree of pairs: `x[i*4] and x[i*4 + 1]`, these two and the next two.
Columns that are neighbours in memory have lanes as they are: those of more than `COLUMN` numbers
stay loops.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from ctk.compiler.codegen.c.loop_splitting import VALUES
from ctk.compiler.codegen.c.loops import cost_along
from ctk.compiler.lowering.arrays import convert
from ctk.compiler.lowering.conditions import decided
from ctk.compiler.lowering.ir import (
    POSITIONS,
    Const,
    Kernel,
    Local,
    Op,
    Reduce,
    Scan,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.walk import Rewriting, walk
from ctk.compiler.sizes.index import Var, as_index, product

T = TypeVar("T")

LONGEST = 32
"""Numbers of the longest row that is written out."""

COLUMN = 8
"""Numbers of the longest column that is written out."""

LANES = 16
"""Rows side by side, at least."""

_COMBINED = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and",
}  # fmt: skip


def write_out(kernel: Kernel) -> Kernel:
    """Return a kernel without loops in its rows, if all of them are short; else the kernel."""
    rows = [sweep for sweep in kernel.sweeps if sweep.inner]
    if not rows or not all(map(_is_short, rows)) or not _is_wide(kernel, rows):
        return kernel
    if any(isinstance(statement, Scan) for statement in kernel.statements):
        return kernel
    count = sum(len(walk(*s.statements)) * (_count(s.inner) or 1) for s in kernel.sweeps)
    if count > VALUES:
        return kernel
    made: dict[str, Value] = {}
    stores = [store for sweep in kernel.sweeps for store in _write_sweep(sweep, made)]
    return replace(kernel, sweeps=(Sweep((), tuple(stores)),))


def _is_short(sweep: Sweep) -> bool:
    return 0 < (_count(sweep.inner) or 0) <= LONGEST


def _count(loops: Sequence[Var]) -> int | None:
    return product([loop.size for loop in loops]).number


def _is_wide(kernel: Kernel, rows: Sequence[Sweep]) -> bool:
    """Return whether the innermost loop around the rows has the better lanes."""
    lanes = kernel.outer[-1] if kernel.outer else None
    if lanes is None or (lanes.size.number or LANES) < LANES:
        return False
    along = sum(cost_along(sweep.inner[-1], sweep.statements) for sweep in rows)
    across = sum(cost_along(lanes, sweep.statements) for sweep in rows)
    return across >= along or all((_count(sweep.inner) or 0) <= COLUMN for sweep in rows)


def _write_sweep(sweep: Sweep, made: dict[str, Value]) -> Iterator[Store]:
    """Yield the stores of a sweep for each of its iterations, and add the results of its rows."""
    known = Rewriting(change=partial(_find, made))
    ranges = [range(loop.size.number or 0) for loop in sweep.inner]
    places = list(itertools.product(*ranges))
    each = [
        Rewriting(dict(zip(sweep.inner, map(as_index, place), strict=True)), decided)
        for place in places
    ]
    for statement in map(known.statement, sweep.statements):
        here = [rewriting.statement(statement) for rewriting in each]
        if isinstance(statement, Reduce):
            made.update(zip(statement.names, _result(statement, here), strict=True))
            known = Rewriting(change=partial(_find, made))
        else:
            yield from (store for store in here if isinstance(store, Store))


def _find(made: Mapping[str, Value], value: Value) -> Value | None:
    return made.get(value.name) if isinstance(value, Local) else None


def _result(row: Reduce, statements: Sequence[Statement]) -> tuple[Value, ...]:
    """Return the results of a reduction of some values."""
    values = [each.value for each in statements if isinstance(each, Reduce)]
    op = partial(_op, row.origin)
    if row.kind == "mean_m2":
        return _moments(values, op)
    if row.kind in POSITIONS:
        return _extreme(row, values, op)
    dtype = row.dtypes[0]
    combined = partial(op, _COMBINED[row.kind], dtype)
    result = _tree(combined, [convert(value, dtype) for value in values])
    if row.kind == "sum" and dtype.is_floating_point:
        result = combined(result, Const(0.0, dtype))  # a sum begins with 0.0: never -0.0
    return (result,)


def _tree(combine: Callable[[T, T], T], items: Sequence[T]) -> T:
    """Combine neighbours, then pairs of them: no long chain of operations, and smaller errors."""
    if len(items) == 1:
        return items[0]
    middle = 1 << (len(items) - 1).bit_length() - 1
    return combine(_tree(combine, items[:middle]), _tree(combine, items[middle:]))


def _op(origin: str, name: str, dtype: torch.dtype, *args: Value) -> Op:
    return Op(name, args, dtype, origin)


def _moments(values: Sequence[Value], op: Callable[..., Op]) -> tuple[Value, Value]:
    dtype = values[0].dtype
    total = _tree(partial(op, "add", dtype), values)
    mean = op("div", dtype, total, Const(float(len(values)), dtype))
    away = [op("sub", dtype, value, mean) for value in values]
    squares = [op("mul", dtype, each, each) for each in away]
    return mean, _tree(partial(op, "add", dtype), squares)


def _extreme(row: Reduce, values: Sequence[Value], op: Callable[..., Op]) -> tuple[Value, Value]:
    """Return the first extreme and its number; the first NaN, if there is one.

    The extreme comes first: GCC 12 does not vectorise choices that depend on an earlier choice.
    """
    dtype = row.value.dtype
    name = "maximum" if row.kind == "argmax" else "minimum"
    best = _tree(partial(op, name, dtype), values)
    found, place = values[-1], Const(len(values) - 1, torch.int32)
    for number, value in reversed(list(enumerate(values[:-1]))):
        is_best = op("eq", torch.bool, value, best)
        if dtype.is_floating_point:
            is_best = op("or", torch.bool, is_best, op("isnan", torch.bool, value))
        found = op("where", dtype, is_best, value, found)
        place = op("where", torch.int32, is_best, Const(number, torch.int32), place)
    return found, convert(place, row.dtypes[1])
