"""Find loads that walk across the rows of memory where the store walks along them.

`out[i*n + j] = a[i*n + j] + b[i + j*n]`: the loop over `j` jumps through `b`. So the two loops run
in square tiles, and a tile of `b` is first copied, along its own rows, into a small array.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ctk.compiler.codegen.c.loops import variables_of
from ctk.compiler.lowering.index import ONE, Var
from ctk.compiler.lowering.ir import Guarded, Kernel, Load, Store, Sweep
from ctk.compiler.lowering.walk import indirect, walk

SIDE = 32
"""Rows and columns of a tile: a line of the cache, twice, of float32."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """Loads that are made a tile at a time.

    Attributes:
        across: The loop along which these loads walk through memory.
        along: The innermost loop, along which the stores do.
        loads: The loads.
    """

    across: Var
    along: Var
    loads: tuple[Load, ...]


def transposed(kernel: Kernel) -> Transposed | None:
    """Return the loads of a pointwise kernel that jump in its innermost loop, if tiles help."""
    if len(kernel.outer) < 2 or any(sweep.inner for sweep in kernel.sweeps):
        return None
    along = kernel.outer[-1]
    if not _is_long(along) or any(map(_is_conditional, kernel.sweeps)):
        return None
    written = {store.buffer for store in kernel.stores}
    found: dict[Var, list[Load]] = {}
    for load in _loads(kernel.sweeps):
        if load.buffer in written or indirect(load.index):
            continue
        jump = load.index.factor_of(along)
        if along not in variables_of(load.index) or jump is None or jump == ONE:
            continue
        for loop in kernel.outer[:-1]:
            if load.index.factor_of(loop) == ONE and _is_long(loop):
                found.setdefault(loop, []).append(load)
    if not found:
        return None
    across = max(found, key=lambda loop: len(found[loop]))
    return Transposed(across, along, tuple(found[across]))


def _loads(sweeps: Sequence[Sweep]) -> list[Load]:
    statements = [each for sweep in sweeps for each in sweep.statements]
    found = {id(v): v for each in statements for v in walk(each) if isinstance(v, Load)}
    return list(found.values())


def _is_long(loop: Var) -> bool:
    return loop.size.number is None or loop.size.number >= SIDE // 2


def _is_conditional(sweep: Sweep) -> bool:
    return any(
        isinstance(value, Guarded)
        for statement in sweep.statements
        if isinstance(statement, Store)
        for value in walk(statement)
    )
