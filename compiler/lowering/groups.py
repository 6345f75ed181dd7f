"""The steps of a program as groups that fusion joins, and the order that holds among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.ir import Buffer, Kernel, Load, Op, Program, Step
from ctk.compiler.lowering.merge import pruned
from ctk.compiler.lowering.order import (
    base_name,
    dependencies,
    in_order,
    step_reads,
    step_writes,
    together,
)
from ctk.compiler.lowering.vocabulary import FUNCTIONS
from ctk.compiler.lowering.walk import loads, reads, values, writes

CHEAP = 6
"""A value of fewer simple operations than this may be computed more than once."""

_SIBLINGS = 4
"""How many of the latest readers of a buffer are tried as siblings."""


@dataclass(slots=True, eq=False)
class Group:
    """Steps that fusion has joined to one.

    Attributes:
        first: The position of its earliest step in the program.
        place: The position of its latest.
        partners: Kernels that share a node's own memory with it: none makes a node's value alone.
        refused: Ids of the kernels with which it cannot be fused as it is.
    """

    step: Step
    first: int
    place: int
    nodes: tuple[str, ...]
    after: dict[Group, None] = field(default_factory=dict["Group", None])
    before: dict[Group, None] = field(default_factory=dict["Group", None])
    partners: dict[Group, None] = field(default_factory=dict["Group", None])
    refused: set[int] = field(default_factory=set[int])

    @property
    def kernel(self) -> Kernel:
        assert isinstance(self.step, Kernel)
        return self.step


class Groups:
    """The groups of a program, with the readers and writers of each buffer."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.writers: dict[str, dict[Group, None]] = {}
        self.readers: dict[str, dict[Group, None]] = {}
        self._has_bases = any(buffer.base for buffer in program.buffers.values())
        groups = [Group(s, place, place, s.nodes) for place, s in enumerate(program.steps)]
        self._all = dict.fromkeys(groups)
        for group, before in zip(groups, dependencies(program), strict=True):
            for place in before:
                put_before(groups[place], group)
            self._enter(group)
        for places in together(program):
            whole = [groups[place] for place in places]
            for group in whole:
                group.partners.update(dict.fromkeys(g for g in whole if g is not group))

    def kernels(self) -> list[Group]:
        """Return the groups that are kernels, in the order of the program."""
        return [group for group in self._all if isinstance(group.step, Kernel)]

    def producers(self, group: Group) -> list[Group]:
        """Return the earlier kernels whose results a kernel reads, the latest first."""
        producers = {
            other
            for name in self._reads(group)
            for other in self.writers.get(name, ())
            if other is not group and other not in group.before and isinstance(other.step, Kernel)
        }
        return sorted(producers, key=lambda each: each.place, reverse=True)

    def siblings(self, group: Group) -> list[Group]:
        """Return some earlier kernels that read memory that a kernel reads, the latest first."""
        siblings = {
            other
            for name in self._reads(group)
            for other in list(self.readers.get(name, ()))[-_SIBLINGS:]
            if other.place < group.place and isinstance(other.step, Kernel)
        }
        return sorted(siblings, key=lambda each: each.place, reverse=True)

    def are_compatible(self, one: Kernel, two: Kernel) -> bool:
        """Return whether two kernels of loops run on one device, and name written memory alike."""
        if isinstance(one, Attention) or isinstance(two, Attention):
            return False
        if one.device != two.device or not self._has_bases:
            return one.device == two.device
        buffers = self.program.buffers
        written = {base_name(buffers, name): name for name in writes(one) | writes(two)}
        touched = reads(one) | reads(two) | writes(one) | writes(two)
        return all(written.get(base_name(buffers, name), name) == name for name in touched)

    def is_needed(self, name: str) -> bool:
        """Return whether a buffer must exist when the program has run."""
        return name in self.program.outputs or self.program.buffers[name].role != "kernel"

    def is_copyable(self, group: Group) -> bool:
        """Return whether the values of a kernel may be computed again, elsewhere and later."""
        read = step_reads(self.program, group.step)
        is_overwritten = any(
            other in group.before for name in read for other in self.writers.get(name, ())
        )
        return not is_overwritten and not group.partners and cost(group.kernel) < CHEAP

    def join(self, first: Group, second: Group, kernel: Kernel, nodes: tuple[str, ...]) -> None:
        """Replace two groups by one with their kernel, at the second's position."""
        for group in (first, second):
            for name in step_reads(self.program, group.step):
                self.readers[name].pop(group, None)
            for name in step_writes(self.program, group.step):
                self.writers[name].pop(group, None)
        for other in first.after:
            del other.before[first]
            put_before(other, second)
        for other in first.before:
            del other.after[first]
            put_before(second, other)
        for other in first.partners:
            del other.partners[first]
            if other is not second:
                other.partners[second] = second.partners[other] = None
        del self._all[first]
        second.first = min(first.first, second.first)
        self._set(second, kernel, nodes)

    def copy_into(
        self, first: Group, second: Group, kernel: Kernel, nodes: tuple[str, ...]
    ) -> None:
        """Replace a group by a kernel that also computes the values of another; that one stays."""
        for name in step_reads(self.program, second.step):
            self.readers[name].pop(second, None)
        for other in first.after:
            put_before(other, second)
        self._set(second, kernel, nodes)

    def result(self) -> Program:
        """Return the program of the groups, in an order that respects their dependencies."""
        needed = set(self.program.outputs)
        steps: list[Step] = []
        after = {group: group.after for group in self._all}  # `leads` keeps it acyclic
        for group in reversed(in_order(after, {group: group.place for group in self._all})):
            step = group.step
            if isinstance(step, Kernel):
                existing = {b for b in writes(step) if self.program.buffers[b].role != "kernel"}
                kept = pruned(step, needed | existing)
                if kept is None:
                    continue
                step = replace(kept, nodes=group.nodes)
            needed |= step_reads(self.program, step)
            steps.append(step)
        steps.reverse()
        return replace(self.program, steps=steps, buffers=self._buffers(steps))

    def _buffers(self, steps: Sequence[Step]) -> dict[str, Buffer]:
        written = {name for step in steps if isinstance(step, Kernel) for name in writes(step)}
        buffers = self.program.buffers.items()
        return {name: b for name, b in buffers if b.role != "kernel" or name in written}

    def _reads(self, group: Group) -> Iterator[str]:
        read = dict.fromkeys(load.buffer for load in loads(group.kernel))
        return (name for name in read if name in self.program.buffers)

    def _set(self, group: Group, kernel: Kernel, nodes: tuple[str, ...]) -> None:
        group.step, group.nodes = kernel, nodes
        group.refused.clear()
        self._enter(group)

    def _enter(self, group: Group) -> None:
        for name in sorted(step_reads(self.program, group.step)):
            self.readers.setdefault(name, {})[group] = None
        for name in sorted(step_writes(self.program, group.step)):
            self.writers.setdefault(name, {})[group] = None


def cost(kernel: Kernel) -> int:
    """Return about how many simple operations one value takes."""
    found = [value for value in values(kernel) if isinstance(value, (Op, Load))]
    functions = sum(isinstance(value, Op) and value.name in FUNCTIONS for value in found)
    return functions * 8 + len(found)


def put_before(earlier: Group, later: Group) -> None:
    """Record that one group must run before another."""
    if earlier is not later:
        earlier.before[later] = None
        later.after[earlier] = None


def leads(first: Group, second: Group) -> bool:
    """Return whether another step must run between two, so that they cannot be joined.

    Kernels that share a node's own memory run together, so no step may come between them either.
    Such a partner may be the step between the two.
    """
    pair = (first, second)
    whole = (*pair, *first.partners, *second.partners)
    return any(_reaches(s, pair) for s in pair) or any(_reaches(s, whole) for s in whole)


def _reaches(start: Group, whole: Sequence[Group]) -> bool:
    """Return whether a path leads from a group back to one of `whole` through any other group."""
    low = min(group.first for group in whole)
    stack = [each for each in start.after if each not in whole]
    seen = set(stack)
    while stack:
        for earlier in stack.pop().after:
            if earlier in whole:
                return True
            if earlier not in seen and earlier.place >= low:
                seen.add(earlier)
                stack.append(earlier)
    return False
