"""Split loops where a condition on their variable changes, so that no piece has a branch in it.

    for i < 64: out[i] = (a[i] if i < 32 else b[i - 32])
becomes
    for i < 32: out[i] = a[i]
    for i < 32: out[i + 32] = b[i]

This is how concatenations, paddings and rotary embeddings keep their loops simple. So do rolls and
repetitions, whose loops are split where a remainder begins again at 0. A loop that would fall into
more pieces than `PIECES`, or of more values than `VALUES`, is split around its longest piece only,
or stays whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import TypeAlias

from ctk.compiler.lowering.conditions import COMPARED, apart_of, decided
from ctk.compiler.lowering.ir import (
    Const,
    Kernel,
    Op,
    Reduce,
    Scan,
    Statement,
    Store,
    Sweep,
)
from ctk.compiler.lowering.walk import Rewriting, indices_of, walk
from ctk.compiler.sizes.index import Remainder, Var, as_index, of_atom

PIECES = 32

VALUES = 400

TINY = 4
"""Loops of so few iterations are unrolled, so that the loop around them is vectorised."""

Piece: TypeAlias = tuple[tuple[Var, ...], tuple[Sweep, ...]]
"""A loop, or none for a single iteration, and the sweeps in it."""


def pieces(loop: Var, sweeps: Sequence[Sweep]) -> list[Piece]:
    """Return loops that together cover a loop around some sweeps, in order."""
    whole: list[Piece] = [((loop,), tuple(sweeps))]
    size = loop.size.number
    if size is None:
        return whole
    statements = _statements(sweeps)
    inside = {point for point in _points(loop, statements) if 0 < point < size}
    inside.update(islice(_wraps(loop, size, statements), PIECES))
    if not inside:
        return whole
    bounds = list(pairwise((0, *sorted(inside), size)))
    longest = max(bounds, key=lambda each: each[1] - each[0])
    split = [_piece(loop, sweeps, *b) for b in bounds] if len(bounds) <= PIECES else []
    if split and _count(split) <= max(VALUES, 2 * len(walk(*statements))):
        return split
    if 2 * (longest[1] - longest[0]) <= size:
        return whole
    points = sorted({0, *longest, size})
    split = [_piece(loop, sweeps, *b) for b in pairwise(points)]
    return split if _count(split) <= 4 * VALUES else whole


def _count(split: Sequence[Piece]) -> int:
    return sum(len(walk(*_statements(inner))) for _, inner in split)


def unrolled(kernel: Kernel) -> Kernel:
    """Return a kernel without its innermost loops of few iterations, if each is pointwise.

    for i < 64: for j < 2: out[i*2 + j] = (a[i] if j < 1 else b[i])
    becomes for i < 64: out[i*2] = a[i]; out[i*2 + 1] = b[i]
    """
    if any(isinstance(s, (Reduce, Scan)) for s in kernel.statements):
        return kernel
    outer, sweeps = kernel.outer, list(map(_unrolled, kernel.sweeps))
    while len(outer) > 1 and _is_tiny(outer[-1]) and not any(sweep.inner for sweep in sweeps):
        made = [_unrolled(Sweep(outer[-1:], sweep.statements)) for sweep in sweeps]
        if any(sweep.inner for sweep in made):
            break
        outer, sweeps = outer[:-1], made
    return replace(kernel, outer=outer, sweeps=tuple(sweeps))


def _unrolled(sweep: Sweep) -> Sweep:
    loops, statements = sweep.inner, sweep.statements
    while loops and _is_tiny(loops[-1]):
        loop, count = loops[-1], loops[-1].size.number or 0
        if len(walk(*statements)) * count > VALUES // 2:
            break
        rewritings = [Rewriting({loop: as_index(at)}, decided) for at in range(count)]
        statements = tuple(each.statement(s) for s in statements for each in rewritings)
        loops = loops[:-1]
    return Sweep(loops, statements) if not loops else sweep


def _is_tiny(loop: Var) -> bool:
    return 0 < (loop.size.number or 0) <= TINY


def _statements(sweeps: Sequence[Sweep]) -> list[Statement]:
    return [statement for sweep in sweeps for statement in sweep.statements]


def _piece(loop: Var, sweeps: Sequence[Sweep], low: int, high: int) -> Piece:
    part = Var(loop.name, as_index(high - low))
    is_single = high == low + 1
    rewriting = Rewriting({loop: as_index(low) if is_single else of_atom(part) + low}, decided)
    return () if is_single else (part,), tuple(_kept(rewriting.sweep(sweep)) for sweep in sweeps)


def _kept(sweep: Sweep) -> Sweep:
    """Leave out stores whose guard never holds, and guards that always do."""
    kept: list[Statement] = []
    for statement in sweep.statements:
        guard = statement.guard if isinstance(statement, Store) else None
        if not isinstance(statement, Store) or not isinstance(guard, Const):
            kept.append(statement)
        elif guard.value:
            kept.append(replace(statement, guard=None))
    return replace(sweep, statements=tuple(kept))


def _points(loop: Var, statements: Iterable[Statement]) -> Iterator[int]:
    """Yield the values of a loop variable at which a condition changes."""
    for statement in statements:
        for value in walk(statement):
            apart = apart_of(value) if isinstance(value, Op) and value.name in COMPARED else None
            if apart is None or loop not in apart.atoms:
                continue
            factor = apart.factor_of(loop)
            rest = None if factor is None else (apart - factor * of_atom(loop)).number
            if factor is None or factor.number is None or rest is None:
                continue
            strict = isinstance(value, Op) and value.name in ("lt", "gt")
            yield _changes_at(factor.number, rest - 1 if strict else rest)


def _wraps(loop: Var, size: int, statements: Iterable[Statement]) -> Iterator[int]:
    """Yield the values of a loop variable at which a remainder begins again."""
    for index in indices_of(statements):
        for atom in index.atoms:
            if not isinstance(atom, Remainder) or loop not in atom.value.atoms:
                continue
            factor, divisor = atom.value.factor_of(loop), atom.divisor.number
            step = None if factor is None else factor.number
            rest = None if step is None else (atom.value - of_atom(loop) * step).number
            if step in (1, -1) and divisor and rest is not None:
                shift = -rest if step == 1 else rest + 1
                yield from range(shift % divisor or divisor, size, divisor)


def _changes_at(factor: int, rest: int) -> int:
    """Return the least v behind which `factor * v + rest >= 0` differs from before."""
    if factor > 0:
        return -(rest // factor)
    return rest // -factor + 1
