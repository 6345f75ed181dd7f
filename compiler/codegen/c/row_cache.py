"""Choose values that a row keeps between its sweeps instead of computing them twice.

A softmax needs `exp(x - max)` for the sum and again for the result. Its row is short enough for the
nearest cache, so the first sweep writes the exponentials to an array, and the second reads them.
"""

from collections.abc import Container, Sequence

from ctk.compiler.codegen.c.loops import variables_of_value
from ctk.compiler.codegen.c.plan import Plan, cost_of
from ctk.compiler.lowering.ir import Guarded, Op, Reduce, Store, Sweep, Value
from ctk.compiler.lowering.walk import Numbers, operands, walk
from ctk.compiler.sizes.index import ZERO, Var

LONGEST = 8192
"""Longer rows leave the cache, and the stack is not for them."""

_COSTLY = 16


def kept_values(sweeps: Sequence[Sweep], numbers: Numbers, plan: Plan) -> dict[int, Value]:
    """Return the values that a later sweep over the same row, or the same one again, also needs.

    They are keyed by number; of nested function calls only the outermost is kept.
    """
    if plan.width or plan.chunks > 1:
        return {}
    uses: dict[tuple[int, Var], int] = {}
    costly: dict[int, Value] = {}
    for sweep in sweeps:
        if len(sweep.inner) != 1 or not 0 < (sweep.inner[0].size.number or 0) <= LONGEST:
            continue
        row, found = sweep.inner[0], set[int]()
        for value, count in _values(sweep):  # operands first
            if _is_costly(value, row, found):
                found.add(id(value))
                key = numbers.of(value), row
                uses[key] = uses.get(key, 0) + count
                costly[key[0]] = value
    kept = {number: costly[number] for (number, _), count in uses.items() if count > 1}
    inside = {numbers.of(operand) for value in kept.values() for operand in operands(value)}
    lazy = {numbers.of(value) for sweep in sweeps for value in _lazy(sweep)}
    return {n: value for n, value in kept.items() if n not in inside and n not in lazy}


def _lazy(sweep: Sweep) -> list[Value]:
    return [
        value
        for statement in sweep.statements
        for guarded in walk(statement)
        if isinstance(guarded, Guarded)
        for value in walk(Store("", ZERO, guarded.value))
    ]


def _values(sweep: Sweep) -> list[tuple[Value, int]]:
    """Return each value of a sweep once, and how many passes over the row compute it."""
    passes: dict[int, tuple[Value, int]] = {}
    for statement in sweep.statements:
        twice = isinstance(statement, Reduce) and statement.kind == "mean_m2"
        for value in walk(statement):
            before = passes.get(id(value), (value, 1))[1]
            passes[id(value)] = value, 2 if twice else before
    return list(passes.values())


def _is_costly(value: Value, row: Var, costly: Container[int]) -> bool:
    """Return whether a value computes a function for each element of a row.

    Args:
        costly: The ids of its operands that do.
    """
    if not isinstance(value, Op) or value.dtype.itemsize < 4 or not value.dtype.is_floating_point:
        return False
    if row not in variables_of_value(value):
        return False
    return cost_of(value) >= _COSTLY or any(id(arg) in costly for arg in value.args)
