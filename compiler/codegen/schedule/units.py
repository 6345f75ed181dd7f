"""The kernels of a program as units: what is made, vetoed and watched together.

A unit is one kernel, or several of which nobody could compute one apart from the others in eager:
they share memory which is no node's value (the mean within a layer norm that was not fused), or
write one node's value one after the other (a copy, then what is scattered into it).
"""

from __future__ import annotations

from dataclasses import dataclass

from ctk.compiler.lowering.ir import Kernel, LibraryCall, Program, is_temporary
from ctk.compiler.lowering.order import dependencies, in_order, together
from ctk.compiler.lowering.walk import reads, writes


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Kernels that run one after the other.

    Attributes:
        name: Of its last kernel.
        kernels: In order.
        nodes: Names of the nodes that they compute.
        reads: Buffers that they read, and do not make.
        stores: Buffers that they write and others may see.
        temporary: Buffers that they write for themselves.
    """

    name: str
    kernels: tuple[Kernel, ...]
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    stores: tuple[str, ...]
    temporary: tuple[str, ...]


def units_of(program: Program) -> list[Unit | LibraryCall]:
    """Return the steps of a program, kernels in units, each after what it needs."""
    steps = program.steps
    heads = list(range(len(steps)))
    for first, *others in together(program):
        for place in others:
            _join(heads, first, place)
    parts: dict[int, list[int]] = {}
    for place in range(len(steps)):
        parts.setdefault(_head(heads, place), []).append(place)
    after = {head: list[int]() for head in parts}
    for place, before in enumerate(dependencies(program)):
        head = _head(heads, place)
        after[head] += [_head(heads, each) for each in before if _head(heads, each) != head]
    order = in_order(after, {head: places[-1] for head, places in parts.items()})
    assert order is not None  # fusion lets nothing come between the kernels of a unit
    return [_step([steps[place] for place in parts[head]], program) for head in order]


def _head(heads: list[int], place: int) -> int:
    while heads[place] != place:
        place = heads[place]
    return place


def _join(heads: list[int], one: int, two: int) -> None:
    first, second = sorted((_head(heads, one), _head(heads, two)))
    heads[second] = first


def _step(steps: list[Kernel | LibraryCall], program: Program) -> Unit | LibraryCall:
    if isinstance(steps[0], LibraryCall):
        return steps[0]
    return _unit(tuple(step for step in steps if isinstance(step, Kernel)), program)


def _unit(kernels: tuple[Kernel, ...], program: Program) -> Unit:
    written = dict.fromkeys(b for kernel in kernels for b in sorted(writes(kernel)))
    made = {b for b in written if program.buffers[b].role == "kernel"}
    read = dict.fromkeys(b for kernel in kernels for b in sorted(reads(kernel)) if b not in made)
    nodes = dict.fromkeys(node for kernel in kernels for node in kernel.nodes)
    return Unit(
        kernels[-1].name,
        kernels,
        tuple(nodes),
        tuple(read),
        tuple(b for b in written if not is_temporary(program, b)),
        tuple(b for b in written if is_temporary(program, b)),
    )
