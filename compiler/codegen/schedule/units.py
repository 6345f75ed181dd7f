"""The kernels of a program as units, which are compiled, vetoed and observed together.

A unit is one kernel, or several that eager cannot compute apart from each other: they share memory
that holds no node's value (the mean within a layer norm that was not fused), or write one node's
value one after the other (a copy, then a scatter into it).
"""

from dataclasses import dataclass

from torch.fx import GraphModule

from ctk.compiler.lowering.ir import Kernel, LibraryCall, Program, Step, is_temporary
from ctk.compiler.lowering.order import gathered
from ctk.compiler.lowering.walk import writes


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """Kernels that run one after the other."""

    name: str
    kernels: tuple[Kernel, ...]
    nodes: tuple[str, ...]
    stores: tuple[str, ...]
    temporary: tuple[str, ...]


def units_of(program: Program) -> list[Unit | LibraryCall]:
    """Return the steps of a program, kernels in units, each after its operands."""
    return [_unit(steps, program) for steps in gathered(program)]


def nodes_of(unit: Unit, gm: GraphModule) -> tuple[str, ...]:
    """Return the nodes of a unit in the order of the graph, `getitem`s of results included."""
    inside = set(unit.nodes)
    picks = (
        user.name
        for node in gm.graph.nodes
        if node.name in inside and isinstance(node.meta.get("val"), (list, tuple))
        for user in node.users
    )
    inside.update(picks)
    return tuple(node.name for node in gm.graph.nodes if node.name in inside)


def _unit(steps: list[Step], program: Program) -> Unit | LibraryCall:
    if isinstance(steps[0], LibraryCall):
        return steps[0]
    kernels = tuple(step for step in steps if isinstance(step, Kernel))
    written = dict.fromkeys(b for kernel in kernels for b in sorted(writes(kernel)))
    nodes = dict.fromkeys(node for kernel in kernels for node in kernel.nodes)
    return Unit(
        kernels[-1].name,
        kernels,
        tuple(nodes),
        tuple(b for b in written if not is_temporary(program, b)),
        tuple(b for b in written if is_temporary(program, b)),
    )
