"""Reorder and join the loops of a kernel; its values stay.

1. `scans_apart`   a sweep that scans and reduces becomes two, as a scan cannot be vectorised
2. `ordered`       the loop that walks through memory step by step becomes the innermost
3. `joined`        two loops over contiguous memory become one
4. `writes_apart`  whether the iterations of a loop may run in parallel
"""

from collections.abc import Iterable
from dataclasses import replace

from ctk.compiler.lowering.ir import (
    Kernel,
    Load,
    Position,
    Reduce,
    Scan,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.walk import Rewriting, indices_of, walk
from ctk.compiler.sizes.index import (
    ZERO,
    Index,
    Indirect,
    Var,
    is_less,
    is_nonnegative,
    of_atom,
)


def scans_apart(kernel: Kernel) -> Kernel:
    """Give the reductions beside a scan a sweep of their own; they do not need the scan."""
    sweeps: list[Sweep] = []
    for sweep in kernel.sweeps:
        reduces = tuple(
            statement for statement in sweep.statements if isinstance(statement, Reduce)
        )
        others = tuple(
            statement for statement in sweep.statements if not isinstance(statement, Reduce)
        )
        if reduces and any(isinstance(other, Scan) for other in others):
            sweeps += [replace(sweep, statements=reduces), replace(sweep, statements=others)]
        else:
            sweeps.append(sweep)
    return replace(kernel, sweeps=tuple(sweeps))


def ordered(kernel: Kernel) -> Kernel:
    """Put the loops through which memory is walked in the smallest steps innermost."""
    sweeps = tuple(
        sweep
        if sweep.is_ordered
        else replace(sweep, inner=_by_steps(sweep.inner, sweep.statements))
        for sweep in kernel.sweeps
    )
    return replace(kernel, outer=_by_steps(kernel.outer, kernel.statements), sweeps=sweeps)


def _by_steps(loops: tuple[Var, ...], statements: tuple[Statement, ...]) -> tuple[Var, ...]:
    if len(loops) < 2:
        return loops
    costs = {loop: cost_along(loop, statements) for loop in loops}
    best = min(reversed(loops), key=lambda loop: costs[loop])
    if costs[best] == costs[loops[-1]] or _is_tiny(best):
        return loops
    return (*(loop for loop in loops if loop != best), best)


def _is_tiny(loop: Var) -> bool:
    return loop.size.number is not None and loop.size.number < 8


def cost_along(loop: Var, statements: Iterable[Statement]) -> int:
    """Return how much of the memory traffic jumps when a loop goes on by one."""
    total = 0
    for statement in statements:
        if isinstance(statement, Store):
            total += 2 * _jump(statement.index, loop)
        total += sum(_jump(v.index, loop) for v in walk(statement) if isinstance(v, Load))
    return total


def _jump(index: Index, loop: Var) -> int:
    if loop not in variables_of(index):
        return 0
    factor = index.factor_of(loop)
    number = None if factor is None else factor.number
    return min(abs(number or 8), 8)


def joined(kernel: Kernel) -> Kernel:
    """Join neighbouring loops through which every index expression goes as through one.

    `i0 < 4, i1 < 8` with indices `i0*8 + i1` and no other use of them becomes `i < 32`.
    """
    outer, sweeps = _joined(kernel.outer, kernel.sweeps)
    made: list[Sweep] = []
    for sweep in sweeps:
        inner, (changed,) = _joined(sweep.inner, (sweep,))
        made.append(replace(changed, inner=inner))
    return replace(kernel, outer=outer, sweeps=tuple(made))


def _joined(
    loops: tuple[Var, ...], sweeps: tuple[Sweep, ...]
) -> tuple[tuple[Var, ...], tuple[Sweep, ...]]:
    """Join the loops around some sweeps, and write the sweeps in terms of the new ones."""
    for position in range(len(loops) - 2, -1, -1):
        first, second = loops[position : position + 2]
        statements = [statement for sweep in sweeps for statement in sweep.statements]
        if _is_one(first, second, indices_of(statements)):
            loop = Var(first.name, first.size * second.size)
            at = of_atom(loop)
            rewriting = Rewriting({first: at // second.size, second: at % second.size})
            loops = (*loops[:position], loop, *loops[position + 2 :])
            sweeps = tuple(map(rewriting.sweep, sweeps))
    return loops, sweeps


def _is_one(first: Var, second: Var, indices: list[Index]) -> bool:
    for index in indices:
        if first not in index.atoms and second not in index.atoms:
            continue
        outer, inner = index.factor_of(first), index.factor_of(second)
        if outer is None or inner is None or outer != inner * second.size:
            return False
    return True


def variables_of(index: Index) -> frozenset[Var]:
    """Return the loop variables that an index depends on, through the values it reads as well."""
    return variables_of_value(Position(index))


def variables_of_value(value: Value) -> frozenset[Var]:
    """Return the loop variables that a value depends on."""
    indices = indices_of((Store("", ZERO, value),))
    return frozenset(atom for index in indices for atom in index.atoms if isinstance(atom, Var))


def writes_apart(kernel: Kernel, var: Var) -> bool:
    """Return whether different iterations of a loop never write to one place."""
    return all(_is_apart(store, var) for store in kernel.stores)


def _is_apart(store: Store, var: Var) -> bool:
    is_computed = any(isinstance(atom, Indirect) for atom in store.index.atoms)
    if not is_computed and store.mode == "set":
        return True
    factor = store.index.factor_of(var)
    if factor is None or factor == ZERO:
        return False
    rest = store.index - factor * of_atom(var)
    period = factor * var.size
    outside = all((Index((term,)) % period) == ZERO for term in rest.terms)
    return outside or (is_nonnegative(rest) and is_less(rest, factor))
