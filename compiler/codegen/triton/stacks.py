"""Give pointwise kernels with short inner loops, as those of a `stack`, a form for blocks.

    for r < 2: out[i*2 + r] = (f(x[i]) if r < 1 else (g(x[i]) if r >= 1 else 0.0))
becomes
    for r < 2: out[i*2 + r] = where(r < 1, f(x[i]), g(x[i]))

An element is loaded once and without a mask, and computed for each value of `i` only. If the other
loops are made in tiles, the inner loop becomes a part of the tile.
"""

from dataclasses import replace

import torch

from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.conditions import decided
from ctk.compiler.lowering.ir import Guarded, Kernel, Op, Position, Store, Sweep, Value
from ctk.compiler.lowering.walk import Rewriting, walk
from ctk.compiler.sizes.index import Var, as_index, of_atom

_MOST = 4
"""How many values of a loop are computed side by side at most."""


def choose_by_place(kernel: Kernel) -> Kernel:
    """Return a kernel whose values depend on its short inner loop by choices only."""
    sweep = _sweep_of_stores(kernel)
    if sweep is None or not 1 < (sweep.inner[-1].size.number or 0) <= _MOST:
        return kernel
    stores = [each for each in sweep.statements if isinstance(each, Store)]
    statements = tuple(_choose(store, sweep.inner[-1]) for store in stores)
    return replace(kernel, sweeps=(replace(sweep, statements=statements),))


def flatten(kernel: Kernel) -> Kernel:
    """Return a pointwise kernel with its inner loops as outer ones."""
    sweep = _sweep_of_stores(kernel)
    if sweep is None:
        return kernel
    return replace(kernel, outer=(*kernel.outer, *sweep.inner), sweeps=(replace(sweep, inner=()),))


def _sweep_of_stores(kernel: Kernel) -> Sweep | None:
    """Return the one sweep of a kernel if it stores in loops of its own, and does nothing else."""
    if isinstance(kernel, Attention) or len(kernel.sweeps) != 1 or not kernel.sweeps[0].inner:
        return None
    (sweep,) = kernel.sweeps
    are_stores = all(isinstance(statement, Store) for statement in sweep.statements)
    return sweep if are_stores else None


def _choose(store: Store, loop: Var) -> Store:
    """Return a store of the value of each iteration, if it has guards and these leave none."""
    if not any(isinstance(value, Guarded) for value in walk(store)):
        return store
    count = loop.size.number or 0
    values = [Rewriting({loop: as_index(n)}, decided).value(store.value) for n in range(count)]
    probes = (replace(store, value=value) for value in values)
    if any(isinstance(value, Guarded) for value in walk(*probes)):
        return store
    result: Value = values[-1]
    for place in reversed(range(count - 1)):
        limit = Position(as_index(place + 1))
        is_here = Op("lt", (Position(of_atom(loop)), limit), torch.bool)
        result = Op("where", (is_here, values[place], result), result.dtype, store.origin)
    return replace(store, value=result)
