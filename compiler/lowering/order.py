"""The reads and writes of a program's steps, and the order that follows from them.

A step comes after the last writer of each thing that it reads or writes, and after the later
readers of each thing that it writes. Besides buffers these are values of other kinds (a size, a
tuple), by the name of their node, and the world: impure steps keep their order.

A buffer that the library made as a view which kernels cannot express has a base:

    v = x.view(int32)          other elements in the memory of x: a buffer `v`, whose base is `x`
    r = view_as_real(z)        z is complex, so it has no buffer: a buffer `r`, whose base is `z`

A step that writes to a base, or to another view of it, keeps its order with each step that touches
the view, and is never fused with one (`groups.py`).
"""

import heapq
import operator
from collections import Counter
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from typing import TypeVar

from torch.fx import Node

from ctk.compiler.fx.effects import mutated_arguments, returned_argument
from ctk.compiler.fx.properties import is_pure, is_view
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.lowering.ir import Buffer, Kernel, Program, Step, View, is_temporary
from ctk.compiler.lowering.walk import reads, symbols, writes
from ctk.compiler.sizes.size_guards import mentioned_symbols

_WORLD = "%effects"


def viewed(node: Node) -> Node | None:
    """Return the base of a view, also of one of several views (of a `split`)."""
    if node.target is operator.getitem:
        (source,) = node.all_input_nodes
        is_list = isinstance(value_of(source), (list, tuple))
        return viewed(source) if is_list and is_view(source) else None
    if not is_view(node):
        return None
    return next(
        (operand for operand in node.all_input_nodes if tensor_of(operand) is not None), None
    )


def root_of(node: Node) -> Node:
    """Return the node whose memory a chain of views, and of calls in place, starts from."""
    while True:
        source = returned_argument(node) or viewed(node)
        if source is None:
            return node
        node = source


def memory_of(
    node: Node, views: Mapping[str, View], buffers: Mapping[str, Buffer]
) -> tuple[str, ...]:
    """Return the names of a node's memory: of its buffer, and of the base of that."""
    view = views.get(node.name)
    if view is not None:
        buffer = buffers.get(view.buffer)
        return (view.buffer, buffer.base) if buffer is not None and buffer.base else (view.buffer,)
    root = root_of(node)
    return (root.name,) if root is node else memory_of(root, views, buffers)


def base_name(buffers: Mapping[str, Buffer], name: str) -> str:
    """Return the name of the memory that a buffer is part of: its own, unless it is a view."""
    return (buffers[name].base if name in buffers else "") or name


def step_reads(program: Program, step: Step) -> frozenset[str]:
    """Return the buffers, other values and the world that a step reads."""
    if isinstance(step, Kernel):
        combined = {store.buffer for store in step.stores if store.mode != "set"}
        sizes = {f"%{symbol.name}" for symbol in symbols(step)}
        return _with_bases(program, reads(step) | combined) | sizes
    operands = step.node.all_input_nodes
    memory = {name for operand in operands for name in _memory(program, operand)}
    return frozenset((*memory, *(f"%{operand.name}" for operand in operands)))


def step_writes(program: Program, step: Step) -> frozenset[str]:
    """Return the buffers, other values and the world that a step writes."""
    if isinstance(step, Kernel):
        return _with_bases(program, writes(step))
    node = step.node
    other = {f"%{node.name}", *(f"%{name}" for name in _new_symbols(node))}
    if not is_pure(node):
        other.add(_WORLD)
    if is_view(node) and node.name not in program.buffers:
        return frozenset(other)
    if node.name in program.buffers:
        other.add(node.name)
    written = (name for argument in mutated_arguments(node) for name in _memory(program, argument))
    return frozenset((*other, *written))


def _new_symbols(node: Node) -> set[str]:
    """Return the names of sizes that a call makes, and no operand mentions."""
    made = set(mentioned_symbols(value_of(node)))
    for operand in node.all_input_nodes if made else ():
        made.difference_update(mentioned_symbols(value_of(operand)))
    return made


def _memory(program: Program, node: Node) -> tuple[str, ...]:
    return memory_of(node, program.views, program.buffers)


def _with_bases(program: Program, names: frozenset[str]) -> frozenset[str]:
    return names.union(base_name(program.buffers, name) for name in names)


def dependencies(program: Program) -> list[dict[int, None]]:
    """Return for each step the earlier steps that must run before it, by their numbers."""
    last: dict[str, int] = {}
    since: dict[str, list[int]] = {}
    result: list[dict[int, None]] = []
    for place, step in enumerate(program.steps):
        read, written = step_reads(program, step), step_writes(program, step)
        before: dict[int, None] = {}
        for name in sorted(read | written):
            if name in last:
                before[last[name]] = None
        for name in sorted(written):
            before.update(dict.fromkeys(since.pop(name, ())))
            last[name] = place
        for name in read:
            since.setdefault(name, []).append(place)
        before.pop(place, None)
        result.append(before)
    return result


def together(program: Program) -> list[tuple[int, ...]]:
    """Return sets of kernels, by their numbers, that cannot be computed apart from each other.

    1. Kernels that share memory which holds no node's value.
    2. Kernels that write one node's value, one after the other, without a library call between.
    """
    touching: dict[tuple[str, int], dict[int, None]] = {}
    by_library: Counter[str] = Counter()  # a call that writes ends a set, and begins another one
    for place, step in enumerate(program.steps):
        if not isinstance(step, Kernel):
            by_library.update(step_writes(program, step))
            continue
        made = {name for name in writes(step) if program.buffers[name].role == "kernel"}
        shared = {name for name in reads(step) if is_temporary(program, name)}
        for name in sorted(made | shared):
            touching.setdefault((name, by_library[name]), {})[place] = None
    return [tuple(places) for places in touching.values() if len(places) > 1]


def gathered(program: Program) -> list[list[Step]]:
    """Return the steps in an order in which inseparable kernels are neighbours."""
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
    # Without a cycle, because fusion lets nothing come between the kernels of a unit.
    order = in_order(after, {head: places[-1] for head, places in parts.items()})
    return [[steps[place] for place in parts[head]] for head in order]


def _head(heads: list[int], place: int) -> int:
    while heads[place] != place:
        place = heads[place]
    return place


def _join(heads: list[int], one: int, two: int) -> None:
    first, second = sorted((_head(heads, one), _head(heads, two)))
    heads[second] = first


Item = TypeVar("Item")


def in_order(after: Mapping[Item, Iterable[Item]], place: Mapping[Item, int]) -> list[Item]:
    """Sort items topologically, ready ones by their places, no two of which are the same.

    Raises:
        CycleError: Some items need each other.
    """
    sorter = TopologicalSorter(after)
    sorter.prepare()
    by_place = {place[item]: item for item in after}
    ready: list[int] = []
    result: list[Item] = []
    while sorter.is_active():
        for item in sorter.get_ready():
            heapq.heappush(ready, place[item])
        result.append(by_place[heapq.heappop(ready)])
        sorter.done(result[-1])
    return result
