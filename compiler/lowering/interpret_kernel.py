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

import numpy as np

from ctk.compiler.errors import CtkError
from ctk.compiler.lowering.interpret_memory import WIDER, Memory
from ctk.compiler.lowering.interpret_ops import Array, compute, convert, reduced, scanned
from ctk.compiler.lowering.interpret_races import Races
from ctk.compiler.lowering.ir import (
    Const,
    Dtype,
    Guarded,
    Kernel,
    Load,
    Local,
    Op,
    Position,
    Reduce,
    Scan,
    Store,
    Sweep,
    Value,
    indirect_value,
)
from ctk.compiler.lowering.vocabulary import ARITY, BOOL_RESULTS, CONVERTS
from ctk.compiler.lowering.walk import indirect, operands
from ctk.compiler.sizes.index import DIVIDE, Atom, Extreme, Index, Indirect, Symbol, Var
from ctk.compiler.sizes.size_guards import number_of


class InterpretError(CtkError):
    """A kernel breaks a rule of the IR; the message names kernel, node and buffer."""


class OutOfRange(InterpretError, IndexError):
    """A kernel reads or writes outside of its memory, or at no position of a dimension."""


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
            values = _Values(self, (*self.kernel.outer, *sweep.inner), seen, statement.origin)
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

    def _reduced(self, reduce: Reduce, values: _Values, inner: int) -> dict[str, Array]:
        value = values.spread(values.of(reduce.value))
        results = reduced(reduce.kind, value, inner)
        named = zip(reduce.names, reduce.dtypes, results, strict=True)
        return {name: convert(result, values.type(dtype)) for name, dtype, result in named}

    def _store(self, store: Store, values: _Values) -> None:
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


class _Values:
    """The values of one statement, as arrays over all iterations of its sweep.

    A mask is the number of a condition under which something is computed (within `Guarded`); 0 is
    always.
    """

    def __init__(
        self, run: _Run, loops: tuple[Var, ...], seen: Mapping[str, Array], origin: str
    ) -> None:
        self.shape = tuple(number_of(loop.size, run.sizes) for loop in loops)
        numbers = np.ix_(*(np.arange(size, dtype=np.int64) for size in self.shape))
        self._vars = dict(zip(loops, numbers, strict=True))
        self._run, self._locals, self._origin = run, seen, origin
        self._known: dict[tuple[int, int], Array] = {}
        self._masks: list[Array | None] = [None]
        self._numbers: dict[tuple[int, int], int] = {}

    def of(self, value: Value, mask: int = 0) -> Array:
        """Return a value, without recursion: expressions can be deep."""
        if 0 in self.shape:
            return convert(np.zeros(self.shape), self.type(value.dtype))
        stack: list[tuple[Value, int, str]] = [(value, mask, self._origin)]
        while stack:
            current, under, above = stack[-1]
            node = getattr(current, "origin", "") or above
            needed = [
                (each, where, node)
                for each, where in self._needs(current, under)
                if (id(each), where) not in self._known
            ]
            if needed:
                stack += reversed(needed)
                continue
            stack.pop()
            if (id(current), under) not in self._known:
                self._known[id(current), under] = self._computed(current, under, node)
        return self._known[id(value), mask]

    def spread(self, value: Array) -> Array:
        """Return a value with an element for each iteration."""
        return np.broadcast_to(value, self.shape)

    def type(self, dtype: Dtype) -> Dtype:
        """Return the type in which values of a type are computed."""
        return WIDER.get(dtype, dtype) if self._run.wide else dtype

    def mask(self, under: int, condition: Array) -> int:
        """Return the mask of a condition that counts where another mask holds."""
        key = under, id(condition)
        if key not in self._numbers:
            before = self._masks[under]
            both = condition if before is None else before & condition
            self._numbers[key] = len(self._masks)
            self._masks.append(self.spread(both))
        return self._numbers[key]

    def chosen(self, mask: int) -> Array:
        """Return for which iterations a mask holds."""
        found = self._masks[mask]
        return np.ones(self.shape, np.bool_) if found is None else found

    def buffer(self, name: str, dtype: Dtype, node: str) -> Memory:
        """Return the memory of a buffer that is accessed as values of a type."""
        memory = self._run.memory[name]
        if memory.dtype != self.type(dtype):
            raise self._error(node, f"{name} is of {memory.dtype}, and accessed as {dtype}")
        return memory

    def index(self, index: Index, mask: int, node: str) -> Array:
        """Return an index expression, whose `Indirect` values are known."""
        total = np.zeros((1,) * len(self.shape), np.int64)
        for monomial, factor in index.terms:
            term = np.asarray(factor, np.int64)
            for atom in monomial:
                term = term * self._atom(atom, mask, node)
            total = total + term
        return total

    def require_within(self, places: Array, mask: int, size: int, what: str, node: str) -> None:
        """Raise `OutOfRange` for a place that is used, and not within a size."""
        wrong = (places < 0) | (places >= size)
        holds = self._masks[mask]
        if holds is not None:
            wrong = wrong & holds
        if wrong.any():
            found = np.argwhere(np.broadcast_to(wrong, self.shape))[0]
            place = int(self.spread(places)[tuple(found)])
            at = ", ".join(f"{v.name}={n}" for v, n in zip(self._vars, found, strict=True))
            text = f"{what} at {place}, which is not within its {size} elements, for {at}"
            raise self._error(node, text, OutOfRange)

    def _needs(self, value: Value, mask: int) -> list[tuple[Value, int]]:
        if not isinstance(value, Guarded):
            return [(operand, mask) for operand in operands(value)]
        condition = self._known.get((id(value.condition), mask))
        if condition is None:
            return [(value.condition, mask)]
        return [(value.value, self.mask(mask, condition)), (value.other, mask)]

    def _computed(self, value: Value, mask: int, node: str) -> Array:
        dtype = self.type(value.dtype)
        if isinstance(value, Const):
            return convert(np.asarray(value.value), dtype)
        if isinstance(value, Position):
            return convert(self.index(value.index, mask, node), dtype)
        if isinstance(value, Local):
            if value.name not in self._locals:
                raise self._error(node, f"reads {value.name} before a sweep has computed it")
            return self._locals[value.name]
        if isinstance(value, Load):
            return self._load(value, mask, node)
        if isinstance(value, Guarded):
            condition = self._known[id(value.condition), mask]
            inside = self._known[id(value.value), self.mask(mask, condition)]
            return np.where(condition, inside, self._known[id(value.other), mask])
        self._require_types(value, node)
        return compute(value.name, [self._known[id(arg), mask] for arg in value.args], dtype)

    def _load(self, load: Load, mask: int, node: str) -> Array:
        memory = self.buffer(load.buffer, load.dtype, node)
        places = self.index(load.index, mask, node)
        self.require_within(places, mask, len(memory), f"reads {load.buffer}", node)
        holds = self._masks[mask]
        if holds is not None:
            places = np.where(holds, places, 0)
        if not len(memory):  # a mask that holds nowhere
            return convert(np.zeros(places.shape), memory.dtype)
        if self._run.races is not None:
            place = memory.owner or load.buffer
            self._run.races.touch("reads", place, self.spread(places), self.chosen(mask), node)
            self._require_written(load, memory, places, mask, node)
        return memory.read(places)

    def _require_written(
        self, load: Load, memory: Memory, places: Array, mask: int, node: str
    ) -> None:
        if memory.written is None:
            return
        missing = self.spread(~memory.written[places]) & self.chosen(mask)
        if missing.any():
            place = int(self.spread(places)[missing][0])
            text = f"reads {load.buffer}[{place}] ({load.index}), which was never written"
            raise self._error(node, f"{text}, or another buffer has taken")

    def _atom(self, atom: Atom, mask: int, node: str) -> Array:
        if isinstance(atom, Symbol):
            return np.asarray(self._run.sizes[atom.name], np.int64)
        if isinstance(atom, Var):
            if atom not in self._vars:
                raise self._error(node, f"uses {atom.name}, which is not a loop around it")
            return self._vars[atom]
        if isinstance(atom, Indirect):
            return self._position(atom, mask, node)
        if isinstance(atom, Extreme):
            left, right = self.index(atom.left, mask, node), self.index(atom.right, mask, node)
            return np.maximum(left, right) if atom.kind == "max" else np.minimum(left, right)
        value, divisor = (self.index(each, mask, node) for each in (atom.value, atom.divisor))
        with np.errstate(all="ignore"):
            return DIVIDE[atom.sign](value, divisor)

    def _position(self, atom: Indirect, mask: int, node: str) -> Array:
        value = indirect_value(atom)
        places = self._known[id(value), mask].astype(np.int64)
        size = number_of(atom.size, self._run.sizes)
        name = value.buffer if isinstance(value, Load) else "a computed number"
        self.require_within(places, mask, size, f"gathers by {name}", node)
        return places

    def _require_types(self, op: Op, node: str) -> None:
        types = [arg.dtype for arg in op.args]
        if len(types) != ARITY[op.name]:
            raise self._error(node, f"{op.name} has {len(types)} operands")
        if op.name in CONVERTS:
            return
        wanted = types[:1] if op.name in BOOL_RESULTS else [op.dtype]
        checked = types[1:] if op.name == "where" else types
        if any(each not in wanted for each in checked):
            kinds = ", ".join(map(str, types))
            raise self._error(node, f"{op.name} of {kinds} gives {op.dtype}")

    def _error(
        self, node: str, text: str, kind: type[InterpretError] = InterpretError
    ) -> InterpretError:
        return kind(f"kernel {self._run.kernel.name}, node {node}: {text}")
