"""The arguments of a kernel: its buffers and its sizes, in an order that printers share."""

from dataclasses import dataclass

from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.walk import indices_of, loads
from ctk.compiler.sizes.index import Index, Indirect, Symbol
from ctk.compiler.sizes.size_guards import symbols_of


@dataclass(frozen=True, slots=True)
class Arguments:
    """The buffers and sizes of a kernel, in the order of its stores, loads and mentions."""

    written: tuple[str, ...]
    read: tuple[str, ...]
    symbols: tuple[Symbol, ...]

    @property
    def buffers(self) -> tuple[str, ...]:
        return (*self.written, *self.read)


def arguments_of(kernel: Kernel) -> Arguments:
    """Return the arguments of a kernel: buffers written, buffers read, sizes."""
    written = tuple(dict.fromkeys(store.buffer for store in kernel.stores))
    read = dict.fromkeys(load.buffer for load in loads(kernel) if load.buffer not in written)
    return Arguments(written, tuple(read), tuple(symbols_of(_indices(kernel))))


def _indices(kernel: Kernel) -> list[Index]:
    loops = (*kernel.outer, *(loop for sweep in kernel.sweeps for loop in sweep.inner))
    found = [*(loop.size for loop in loops), *indices_of(kernel.statements)]
    computed = [atom for index in found for atom in index.atoms if isinstance(atom, Indirect)]
    return [*found, *(atom.size for atom in computed)]
