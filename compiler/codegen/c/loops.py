"""Choose how the loops of a kernel run: joined, in which order, side by side, on how many threads.

Each step changes the kernel's loops and nothing that it computes:
1. `joined`      two loops that memory walks as one become one
2. `is_parallel` a loop whose iterations write to different places may run on threads
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ctk.compiler.lowering.index import (
    ONE,
    ZERO,
    Index,
    Indirect,
    Var,
    is_less,
    of_atom,
    product,
)
from ctk.compiler.lowering.ir import (
    Kernel,
    Load,
    Op,
    Position,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.vocabulary import DIVISION, FUNCTIONS
from ctk.compiler.lowering.walk import Rewriting, walk

GRAIN = 16384
"""A loop nest of fewer simple operations than this runs on one thread."""


def indices_of(statements: Iterable[Statement]) -> list[Index]:
    """Return every index expression of some statements."""
    found: list[Index] = []
    for statement in statements:
        if isinstance(statement, Store):
            found.append(statement.index)
        found += [v.index for v in walk(statement) if isinstance(v, (Load, Position))]
    return found


def joined(kernel: Kernel) -> Kernel:
    """Join neighbouring loops through which every index expression goes as through one.

    `i0 < 4, i1 < 8` with indices `i0*8 + i1` and no other use of them becomes `i < 32`.
    """
    kernel = _joined_outer(kernel)
    return replace(kernel, sweeps=tuple(_joined_inner(each) for each in kernel.sweeps))


def _joined_outer(kernel: Kernel) -> Kernel:
    position = len(kernel.outer) - 2
    while position >= 0:
        first, second = kernel.outer[position : position + 2]
        if _is_one(first, second, indices_of(kernel.statements)):
            loop, rewriting = _one(first, second)
            outer = (*kernel.outer[:position], loop, *kernel.outer[position + 2 :])
            sweeps = tuple(_rewritten(each, rewriting) for each in kernel.sweeps)
            kernel = replace(kernel, outer=outer, sweeps=sweeps)
        position -= 1
    return kernel


def _joined_inner(sweep: Sweep) -> Sweep:
    position = len(sweep.inner) - 2
    while position >= 0:
        first, second = sweep.inner[position : position + 2]
        if _is_one(first, second, indices_of(sweep.statements)):
            loop, rewriting = _one(first, second)
            inner = (*sweep.inner[:position], loop, *sweep.inner[position + 2 :])
            sweep = replace(_rewritten(sweep, rewriting), inner=inner)
        position -= 1
    return sweep


def _is_one(first: Var, second: Var, indices: list[Index]) -> bool:
    for index in indices:
        if first not in index.atoms and second not in index.atoms:
            continue
        outer, inner = index.factor_of(first), index.factor_of(second)
        if outer is None or inner is None or outer != inner * second.size:
            return False
    return True


def _one(first: Var, second: Var) -> tuple[Var, Rewriting]:
    loop = Var(first.name, first.size * second.size)
    at = of_atom(loop)
    return loop, Rewriting({first: at // second.size, second: at % second.size})


def _rewritten(sweep: Sweep, rewriting: Rewriting) -> Sweep:
    return Sweep(sweep.inner, tuple(map(rewriting.statement, sweep.statements)))


def variables_of(index: Index) -> frozenset[Var]:
    """Return the loop variables that an index expression depends on, through what it reads too."""
    found = {atom for atom in index.atoms if isinstance(atom, Var)}
    for atom in index.atoms:
        if isinstance(atom, Indirect):
            found |= _variables(atom.value)  # type: ignore[arg-type]  # index.py does not know Value
    return frozenset(found)


def _variables(value: Value) -> frozenset[Var]:
    statement = Store("", ZERO, value)
    return frozenset(
        atom for i in indices_of((statement,)) for atom in i.atoms if isinstance(atom, Var)
    )


def writes_apart(kernel: Kernel, var: Var) -> bool:
    """Return whether different iterations of a loop never write to one place."""
    return all(_is_apart(store, var) for store in kernel.stores)


def _is_apart(store: Store, var: Var) -> bool:
    computed = [atom for atom in store.index.atoms if isinstance(atom, Indirect)]
    if not computed and store.mode == "set":
        return True
    if any(var in variables_of(of_atom(atom)) for atom in computed):
        return False
    factor = store.index.factor_of(var)
    if factor is None or factor == ZERO:
        return False
    rest = store.index - factor * of_atom(var)
    period = factor * var.size
    outside = all((Index((term,)) % period) == ZERO for term in rest.terms)
    return outside or is_less(rest, factor)


def work_of(kernel: Kernel) -> Index:
    """Return about how many simple operations a kernel makes."""
    outer = product([loop.size for loop in kernel.outer])
    total = ZERO
    for sweep in kernel.sweeps:
        count = product([loop.size for loop in sweep.inner])
        cost = sum(_cost(value) for each in sweep.statements for value in walk(each))
        total = total + count * max(cost, 1)
    return outer * total if kernel.sweeps else ONE


def _cost(value: Value) -> int:
    if isinstance(value, Load):
        return 1
    if not isinstance(value, Op):
        return 0
    return _COSTS.get(value.name, 1)


_COSTS: Mapping[str, int] = {
    **dict.fromkeys(FUNCTIONS, 16),
    **dict.fromkeys((*DIVISION, "sqrt", "rsqrt"), 4),
    "philox": 40,
}
