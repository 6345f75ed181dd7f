"""The reference interpreter for one kernel: the loop IR in numpy, all iterations at once.

Each loop variable is an array along its own axis, so that the value of an expression is an array
that broadcasts to the loops: the outer ones first, then those of the sweep. Statements run one
after the other, each for all iterations. The results are those of loops as long as iterations are
independent, which `check=True` verifies.

    kernel s(i0 < 4): for r0 < 8: s = sum(x[i0*8 + r0])     i0 has the shape (4, 1), r0 (1, 8)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ctk.compiler.lowering.interpret_memory import Memory
from ctk.compiler.lowering.interpret_ops import Array, convert
from ctk.compiler.lowering.interpret_races import Races
from ctk.compiler.lowering.interpret_reductions import reduced, scanned
from ctk.compiler.lowering.interpret_values import InterpretError, KernelValues
from ctk.compiler.lowering.ir import Kernel, Reduce, Scan, Statement, Store, Sweep
from ctk.compiler.lowering.walk import indirect
from ctk.compiler.sizes.size_guards import number_of


def run_kernel(
    kernel: Kernel,
    memory: Mapping[str, Memory],
    sizes: Mapping[str, int],
    *,
    precision: str | None = None,
    check: bool = False,
) -> None:
    """Run a kernel on memory.

    Args:
        precision: "float64" computes every float in float64; the memory of floats is float64 then.
        check: Also raise if iterations depend on each other or read memory that was never written.

    Raises:
        InterpretError: The kernel breaks a rule of the IR.
    """
    outer = math.prod(number_of(loop.size, sizes) for loop in kernel.outer)
    if outer == 0:
        return
    run = _Run(kernel, memory, sizes, precision == "float64", Races(outer) if check else None)
    for sweep in kernel.sweeps:
        run.sweep(sweep)
    if run.races is not None:
        run.require(run.races.end_kernel())


@dataclass(slots=True)
class _Run:
    """One kernel that runs."""

    kernel: Kernel
    memory: Mapping[str, Memory]
    sizes: Mapping[str, int]
    wide: bool
    races: Races | None
    locals: dict[str, Array] = field(default_factory=dict[str, Array])

    def require(self, message: str | None) -> None:
        if message is not None:
            raise InterpretError(f"kernel {self.kernel.name}: {message}")

    def sweep(self, sweep: Sweep) -> None:
        """Run the statements of a sweep; later sweeps see the results of its reductions."""
        outer = self.locals
        flat = (1,) * len(sweep.inner)
        seen = {name: array.reshape(array.shape + flat) for name, array in outer.items()}
        found: dict[str, Array] = {}
        for statement in sweep.statements:
            values = self._values(sweep, statement, seen)
            if isinstance(statement, Store):
                self._store(statement, values)
            elif isinstance(statement, Scan):
                value = values.spread(values.of(statement.value))
                result = scanned(statement.kind, value, len(sweep.inner))
                seen[statement.name] = convert(result, values.type(statement.dtype))
            else:
                found.update(self._reduced(statement, values, len(sweep.inner)))
        self.locals = {**outer, **found}
        if self.races is not None:
            self.require(self.races.end_sweep())

    def _values(
        self, sweep: Sweep, statement: Statement, seen: Mapping[str, Array]
    ) -> KernelValues:
        loops = (*self.kernel.outer, *sweep.inner)
        return KernelValues(
            self.kernel.name, loops, self.memory, self.sizes, seen, self.wide, self.races,
            statement.origin,
        )  # fmt: skip

    def _reduced(self, reduce: Reduce, values: KernelValues, inner: int) -> dict[str, Array]:
        value = values.spread(values.of(reduce.value))
        results = reduced(reduce.kind, value, inner)
        named = zip(reduce.names, reduce.dtypes, results, strict=True)
        return {name: convert(result, values.type(dtype)) for name, dtype, result in named}

    def _store(self, store: Store, values: KernelValues) -> None:
        if 0 in values.shape:
            return
        value = values.spread(values.of(store.value))
        guard = None if store.guard is None else values.of(store.guard)
        mask = 0 if guard is None else values.mask(0, guard)
        for each in indirect(store.index):
            values.of(each, mask)
        memory = values.buffer(store.buffer, store.value.dtype, store.origin)
        places = values.spread(values.index(store.index, mask, store.origin))
        values.require_within(places, mask, len(memory), f"writes {store.buffer}", store.origin)
        chosen = values.chosen(mask)
        if self.races is not None:
            kind = "writes" if store.mode == "set" else "combines with"
            place = memory.owner or store.buffer
            self.races.touch(kind, place, places, chosen, store.origin)
        memory.write(places[chosen], value[chosen], store.mode)
