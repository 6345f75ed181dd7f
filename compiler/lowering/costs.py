"""The cost of a kernel for fusion: its iterations, its loads and its operations."""

from collections.abc import Sequence

from ctk.compiler.lowering.ir import Kernel, Load, Op
from ctk.compiler.lowering.merge import sole_store
from ctk.compiler.lowering.vocabulary import FUNCTIONS
from ctk.compiler.lowering.walk import loads, walk
from ctk.compiler.sizes.index import ZERO, Indirect, Var, is_nonnegative, product

CHEAP = 6
"""A value of fewer simple operations than this may be computed more than once."""


def ordered_reads(kernel: Kernel) -> list[str]:
    """Return the buffers that a kernel reads, in the order of its statements."""
    return list(dict.fromkeys(load.buffer for load in loads(kernel)))


def touched(kernel: Kernel) -> set[tuple[str, object]]:
    """Return each buffer that a kernel reads, with each index."""
    return {(load.buffer, load.index) for load in loads(kernel)}


def cost(kernel: Kernel) -> int:
    """Return about how many simple operations one value takes."""
    values = walk(*kernel.statements)
    functions = sum(isinstance(value, Op) and value.name in FUNCTIONS for value in values)
    return functions * 8 + sum(isinstance(value, (Op, Load)) for value in values)


def trip_count(loops: Sequence[Var]) -> int | None:
    """Return the number of iterations of some loops, if it is known."""
    return product([loop.size for loop in loops]).number


def iterations(kernel: Kernel) -> int | None:
    """Return how often the longest sweep of a kernel runs, if it is known."""
    counts = [trip_count((*kernel.outer, *sweep.inner)) for sweep in kernel.sweeps]
    return None if None in counts else max(each or 0 for each in counts)


def gathers(kernel: Kernel) -> list[str]:
    """Return the buffers that a kernel reads at computed positions only."""
    found = {load.buffer: True for load in loads(kernel)}
    for load in loads(kernel):
        found[load.buffer] &= any(isinstance(atom, Indirect) for atom in load.index.atoms)
    return [buffer for buffer, only in found.items() if only]


def is_gathered(producer: Kernel, consumer: Kernel) -> bool:
    """Return whether a producer makes one value, of which the other needs at most every second."""
    store = sole_store(producer)
    if store is None:
        return False
    needed = ZERO
    for sweep in consumer.sweeps:
        loops = product([loop.size for loop in (*consumer.outer, *sweep.inner)])
        values = walk(*sweep.statements)
        read = {v.index for v in values if isinstance(v, Load) and v.buffer == store.buffer}
        needed = needed + loops * len(read)
    made = product([loop.size for loop in producer.outer])
    return is_nonnegative(made - needed * 2)
