"""What a kernel is called with: its buffers and its sizes, in an order that printers share."""

from __future__ import annotations

from dataclasses import dataclass

from ctk.compiler.lowering.index import Index, Indirect, Symbol
from ctk.compiler.lowering.ir import Kernel, Load, Position, Store
from ctk.compiler.lowering.sizes import symbols_of
from ctk.compiler.lowering.walk import loads, walk


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a kernel.

    Attributes:
        written: Buffers that it stores to, in the order of its stores.
        read: Buffers that it reads and does not write, in the order of its loads.
        symbols: Sizes that its loops and positions mention, by name.
    """

    written: tuple[str, ...]
    read: tuple[str, ...]
    symbols: tuple[Symbol, ...]

    @property
    def buffers(self) -> tuple[str, ...]:
        return (*self.written, *self.read)


def arguments_of(kernel: Kernel) -> Arguments:
    """Return what a kernel is called with: buffers written, buffers read, sizes."""
    written = tuple(dict.fromkeys(store.buffer for store in kernel.stores))
    read = dict.fromkeys(load.buffer for load in loads(kernel) if load.buffer not in written)
    return Arguments(written, tuple(read), tuple(symbols_of(_indices(kernel))))


def _indices(kernel: Kernel) -> list[Index]:
    found = [loop.size for loop in kernel.outer]
    for sweep in kernel.sweeps:
        found += [loop.size for loop in sweep.inner]
        for statement in sweep.statements:
            if isinstance(statement, Store):
                found.append(statement.index)
            values = walk(statement)
            found += [value.index for value in values if isinstance(value, (Load, Position))]
    computed = [atom for index in found for atom in index.atoms if isinstance(atom, Indirect)]
    return [*found, *(atom.size for atom in computed)]
