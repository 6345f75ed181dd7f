"""Values of the loop IR as arrays over all iterations of a sweep, for the reference interpreter."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ctk.compiler.errors import CtkError
from ctk.compiler.lowering.interpret_memory import WIDER, Memory
from ctk.compiler.lowering.interpret_ops import Array, compute, convert
from ctk.compiler.lowering.interpret_races import Races
from ctk.compiler.lowering.ir import (
    Const,
    Dtype,
    Guarded,
    Load,
    Local,
    Op,
    Position,
    Value,
    indirect_value,
)
from ctk.compiler.lowering.vocabulary import ARITY, BOOL_RESULTS, CONVERTS
from ctk.compiler.lowering.walk import operands
from ctk.compiler.sizes.index import DIVIDE, Atom, Extreme, Index, Indirect, Symbol, Var
from ctk.compiler.sizes.size_guards import number_of


class InterpretError(CtkError):
    """A kernel breaks a rule of the IR; the message names kernel, node and buffer."""


class OutOfRange(InterpretError, IndexError):
    """A kernel reads or writes outside of its memory, or at no position of a dimension."""


class KernelValues:
    """The values of one statement.

    A mask is the number of a condition under which something is computed (within `Guarded`); 0 is
    always.
    """

    def __init__(
        self,
        kernel: str,
        loops: tuple[Var, ...],
        memory: Mapping[str, Memory],
        sizes: Mapping[str, int],
        seen: Mapping[str, Array],
        wide: bool,
        races: Races | None,
        origin: str,
    ) -> None:
        self.shape = tuple(number_of(loop.size, sizes) for loop in loops)
        self._vars = {
            loop: np.arange(size, dtype=np.int64).reshape(_along(axis, len(loops)))
            for axis, (loop, size) in enumerate(zip(loops, self.shape, strict=True))
        }
        self._kernel = kernel
        self._memory, self._sizes, self._locals = memory, sizes, seen
        self._wide, self._races, self._origin = wide, races, origin
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
        return WIDER.get(dtype, dtype) if self._wide else dtype

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
        memory = self._memory[name]
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
            raise OutOfRange(self._message(node, text))

    def _needs(self, value: Value, mask: int) -> list[tuple[Value, int]]:
        if not isinstance(value, Guarded):
            return [(each, mask) for each in operands(value)]
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
        return compute(value.name, [self._known[id(each), mask] for each in value.args], dtype)

    def _load(self, load: Load, mask: int, node: str) -> Array:
        memory = self.buffer(load.buffer, load.dtype, node)
        places = self.index(load.index, mask, node)
        self.require_within(places, mask, len(memory), f"reads {load.buffer}", node)
        holds = self._masks[mask]
        if holds is not None:
            places = np.where(holds, places, 0)
        if not len(memory):  # a mask that holds nowhere
            return convert(np.zeros(places.shape), memory.dtype)
        if self._races is not None:
            place = memory.owner or load.buffer
            self._races.touch("reads", place, self.spread(places), self.chosen(mask), node)
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
            return np.asarray(self._sizes[atom.name], np.int64)
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
        size = number_of(atom.size, self._sizes)
        name = value.buffer if isinstance(value, Load) else "a computed number"
        self.require_within(places, mask, size, f"gathers by {name}", node)
        return places

    def _require_types(self, op: Op, node: str) -> None:
        types = [each.dtype for each in op.args]
        if len(types) != ARITY[op.name]:
            raise self._error(node, f"{op.name} has {len(types)} operands")
        if op.name in CONVERTS:
            return
        wanted = types[:1] if op.name in BOOL_RESULTS else [op.dtype]
        checked = types[1:] if op.name == "where" else types
        if any(each not in wanted for each in checked):
            kinds = ", ".join(map(str, types))
            raise self._error(node, f"{op.name} of {kinds} gives {op.dtype}")

    def _error(self, node: str, text: str) -> InterpretError:
        return InterpretError(self._message(node, text))

    def _message(self, node: str, text: str) -> str:
        return f"kernel {self._kernel}, node {node}: {text}"


def _along(axis: int, rank: int) -> tuple[int, ...]:
    return tuple(-1 if each == axis else 1 for each in range(rank))
