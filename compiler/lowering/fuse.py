"""Fusion: which kernels become one. Every fusion is a numbered rewrite, which may be vetoed.

Kernels are taken in the order of the program. First each one computes itself what it gathers:
    gather     a value that it needs at fewer places than there are, given by an index that it reads
    recompute  the same, of a value that others read, too, and which is as cheap to compute
Then each one tries, until nothing more fits:
    1. inline     a producer that nobody else reads, if what it computes is not computed more often
    2. merge      a producer whose loops are the same, so that its results stay in registers
    3. siblings   an earlier kernel that reads the same memory in the same loops
Never fused: kernels of two devices; two with a step between them that must run between them (a
read of the second depends on it, or it reads what the second writes); what would leave too few
outer iterations for the machine; more nodes than a compiler likes in one function.

Source: the scores and conditions of `torch/_inductor/scheduler.py`. This one goes through the
program once, and looks for paths between steps only where a fusion is about to happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ctk.compiler.lowering.aliases import base_name
from ctk.compiler.lowering.align import Misaligned
from ctk.compiler.lowering.costs import (
    CHEAP,
    cost,
    gathers,
    is_gathered,
    iterations,
    ordered_reads,
    touched,
    trip_count,
)
from ctk.compiler.lowering.groups import Group, leads, put_before
from ctk.compiler.lowering.ir import Allow, Buffer, Kernel, Program, Step
from ctk.compiler.lowering.merge import inline, merge, pruned, sole_store
from ctk.compiler.lowering.order import dependencies, in_order, step_reads, step_writes, together
from ctk.compiler.lowering.walk import loads, reads, walk, writes
from ctk.compiler.sizes.index import Var


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """What may be fused.

    Attributes:
        exact: Round where eager rounds.
        min_outer: With fewer outer iterations than this, a kernel leaves processors idle.
        small: A kernel of fewer iterations than this runs on one processor anyway.
        max_nodes: Nodes of the graph in one kernel.
        max_values: Values in one kernel.
    """

    exact: bool = False
    min_outer: int = 16
    small: int = 16384
    max_nodes: int = 128
    max_values: int = 400


def fuse(program: Program, allow: Allow, options: FusionOptions | None = None) -> Program:
    """Return a program with fewer kernels that computes the same.

    Args:
        program: As lowered; not changed.
        allow: Is asked before each fusion.
        options: What may be fused.
    """
    fusion = _Fusion(program, allow, options or FusionOptions())
    fusion.run()
    return fusion.result()


class _Fusion:
    """The program while its kernels are being fused."""

    def __init__(self, program: Program, allow: Allow, options: FusionOptions) -> None:
        self.program = program
        self.allow = allow
        self.options = options
        self.groups: dict[Group, None] = {}
        self.writers: dict[str, dict[Group, None]] = {}
        self.readers: dict[str, dict[Group, None]] = {}
        self.has_bases = any(buffer.base for buffer in program.buffers.values())
        self._connect()

    def run(self) -> None:
        for group in list(self.groups):
            while isinstance(group.step, Kernel) and self._gathered(group):
                pass
        for group in list(self.groups):
            while isinstance(group.step, Kernel) and self._grown(group):
                pass

    def result(self) -> Program:
        """Return the program of the groups, in an order that respects what depends on what."""
        needed = set(self.program.outputs)
        steps: list[Step] = []
        order = in_order(
            {group: list(group.after) for group in self.groups},
            {group: group.place for group in self.groups},
        )
        assert order is not None  # leads keeps it free of circles
        for group in reversed(order):
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
        """Return the buffers that are still there."""
        made = {name for step in steps if isinstance(step, Kernel) for name in writes(step)}
        every = self.program.buffers.items()
        return {name: b for name, b in every if b.role != "kernel" or name in made}

    def _connect(self) -> None:
        """Make a group of each step, with what must run before it."""
        program = self.program
        groups = [Group(s, place, place, s.nodes) for place, s in enumerate(program.steps)]
        for group, before in zip(groups, dependencies(program), strict=True):
            self.groups[group] = None
            for place in before:
                put_before(groups[place], group)
            self._enter(group)
        for places in together(program):
            whole = [groups[place] for place in places]
            for group in whole:
                group.partners.update(dict.fromkeys(g for g in whole if g is not group))

    def _enter(self, group: Group) -> None:
        """Note what a group reads and writes."""
        for name in sorted(step_reads(self.program, group.step)):
            self.readers.setdefault(name, {})[group] = None
        for name in sorted(step_writes(self.program, group.step)):
            self.writers.setdefault(name, {})[group] = None

    def _gathered(self, group: Group) -> bool:
        """Let a group compute a value that it gathers, if there is one; tell whether.

        The logarithm of a softmax is needed for one class of each row only. So it is not written:
        its maximum and its sum are, and the loss computes the rest.
        """
        assert isinstance(group.step, Kernel)
        names = (name for name in gathers(group.step) if name in self.program.buffers)
        return any(self._gathers(name, group) for name in names)

    def _gathers(self, name: str, group: Group) -> bool:
        """Compute what a group gathers from a buffer in the group; tell whether it was done."""
        producers = list(self.writers.get(name, ()))
        if len(producers) != 1 or self._is_kept(name) or producers[0] in group.before:
            return False
        (first,) = producers
        one, two = first.step, group.step
        assert isinstance(two, Kernel)
        if not isinstance(one, Kernel) or id(one) in group.refused or not self._are_apart(one, two):
            return False
        nodes = tuple(dict.fromkeys((*first.nodes, *group.nodes)))
        alone = list(self.readers.get(name, ())) == [group]
        fits = len(nodes) <= self.options.max_nodes and is_gathered(one, two)
        fits = fits and (not leads(first, group) if alone else self._is_copied(first))
        made = self._inlined("gather" if alone else "recompute", one, two) if fits else None
        if made is None or not self.allow(f"{made[0]} {one.name} -> {two.name}", nodes):
            group.refused.add(id(one))
            return False
        if alone:
            self._replace(first, group, made[1], nodes)
        else:
            self._copy(first, group, made[1], nodes)
        return True

    def _are_apart(self, one: Kernel, two: Kernel) -> bool:
        """Return whether one device has both, and neither writes what the other calls otherwise."""
        if one.device != two.device or not self.has_bases:
            return one.device == two.device
        buffers = self.program.buffers
        written = {base_name(buffers, name): name for name in writes(one) | writes(two)}
        touched = reads(one) | reads(two) | writes(one) | writes(two)
        return all(written.get(base_name(buffers, name), name) == name for name in touched)

    def _is_kept(self, name: str) -> bool:
        """Return whether a buffer is there when the program has run, whoever made it."""
        return name in self.program.outputs or self.program.buffers[name].role != "kernel"

    def _is_copied(self, first: Group) -> bool:
        """Return whether what a kernel computes may be computed elsewhere, too, and later."""
        assert isinstance(first.step, Kernel)
        read = step_reads(self.program, first.step)
        written = any(
            other in first.before for name in read for other in self.writers.get(name, ())
        )
        return not written and not first.partners and cost(first.step) < CHEAP

    def _copy(self, first: Group, second: Group, kernel: Kernel, nodes: tuple[str, ...]) -> None:
        """Put a kernel in the place of a group that computes again what another one does."""
        for name in step_reads(self.program, second.step):
            self.readers[name].pop(second, None)
        for other in first.after:
            put_before(other, second)
        second.step, second.nodes = kernel, nodes
        second.refused.clear()
        self._enter(second)

    def _grown(self, group: Group) -> bool:
        """Fuse a group with one other, if it can be; tell whether it was."""
        return any(self._fused(*pair) for pair in self._candidates(group))

    def _candidates(self, group: Group) -> Iterator[tuple[Group, Group, bool]]:
        """Yield pairs in program order, and whether the second reads what the first makes."""
        assert isinstance(group.step, Kernel)
        read = [name for name in ordered_reads(group.step) if name in self.program.buffers]
        producers = {
            other: None
            for name in read
            for other in self.writers.get(name, ())
            if other is not group and other not in group.before and isinstance(other.step, Kernel)
        }
        for other in sorted(producers, key=lambda each: each.place, reverse=True):
            yield other, group, True
        siblings = {
            other: None
            for name in read
            for other in list(self.readers.get(name, ()))[-_SIBLINGS:]
            if other.place < group.place and isinstance(other.step, Kernel)
        }
        for other in sorted(siblings, key=lambda each: each.place, reverse=True):
            if other not in producers:
                yield other, group, False

    def _fused(self, first: Group, second: Group, is_producer: bool) -> bool:
        one, two = first.step, second.step
        assert isinstance(one, Kernel) and isinstance(two, Kernel)
        nodes = tuple(dict.fromkeys((*first.nodes, *second.nodes)))
        if id(one) in second.refused or not self._are_apart(one, two):
            return False
        made = self._fusion(first, second, is_producer) if self._may_grow(nodes) else None
        if made is None or leads(first, second):
            second.refused.add(id(one))
            return False
        rule, kernel = made
        if not self.allow(f"{rule} {one.name} -> {two.name}", nodes):
            second.refused.add(id(one))
            return False
        self._replace(first, second, kernel, nodes)
        return True

    def _may_grow(self, nodes: Sequence[str]) -> bool:
        return len(nodes) <= self.options.max_nodes

    def _fusion(self, first: Group, second: Group, is_producer: bool) -> tuple[str, Kernel] | None:
        """Return the rule and the kernel of a fusion of two groups, if there is one."""
        one, two = first.step, second.step
        assert isinstance(one, Kernel) and isinstance(two, Kernel)
        if is_producer and self._is_inlined(first, second):
            made = self._inlined("inline", one, two)
            if made is not None:
                return made
        try:
            kernel = merge(one, two, exact=self.options.exact)
        except Misaligned:
            return None
        if not self._is_wide(kernel, (one, two)) or not self._shares(kernel, one, two, is_producer):
            return None
        return self._within("merge" if is_producer else "sibling", kernel)

    def _inlined(self, rule: str, one: Kernel, two: Kernel) -> tuple[str, Kernel] | None:
        try:
            return self._within(rule, inline(one, two, exact=self.options.exact))
        except Misaligned:
            return None

    def _within(self, rule: str, kernel: Kernel) -> tuple[str, Kernel] | None:
        size = len(walk(*kernel.statements))
        return (rule, kernel) if size <= self.options.max_values else None

    def _is_inlined(self, first: Group, second: Group) -> bool:
        """Return whether a producer makes what one kernel only reads, and not more often."""
        one, two = first.step, second.step
        assert isinstance(one, Kernel) and isinstance(two, Kernel)
        store = sole_store(one)
        if store is None or self._is_kept(store.buffer):
            return False
        between = list(self.writers[store.buffer]), list(self.readers.get(store.buffer, ()))
        if between != ([first], [second]):
            return False
        found = {load.index for load in loads(two) if load.buffer == store.buffer}
        if cost(one) < CHEAP:
            return True
        loops = {*two.outer, *(loop for sweep in two.sweeps for loop in sweep.inner)}
        mentioned = {atom for index in found for atom in index.atoms if isinstance(atom, Var)}
        return len(found) == 1 and loops <= mentioned

    def _is_wide(self, kernel: Kernel, parts: Sequence[Kernel]) -> bool:
        """Return whether a merged kernel leaves enough outer iterations for all processors."""
        limit, trips = self.options.min_outer, trip_count(kernel.outer)
        if trips is None or trips >= limit or all(trip_count(p.outer) == trips for p in parts):
            return True
        sizes = [iterations(part) for part in parts]
        return all(size is not None and size < self.options.small for size in sizes)

    def _shares(self, kernel: Kernel, one: Kernel, two: Kernel, is_producer: bool) -> bool:
        """Return whether a merge saves a read: of the result, or of something that both read."""
        if is_producer:
            return True
        return len(touched(kernel)) < len(touched(one)) + len(touched(two))

    def _replace(self, first: Group, second: Group, kernel: Kernel, nodes: tuple[str, ...]) -> None:
        """Put what two groups have become in the place of the second."""
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
        del self.groups[first]
        second.step, second.nodes = kernel, nodes
        second.first = min(first.first, second.first)
        second.refused.clear()
        self._enter(second)


_SIBLINGS = 4
"""How many of the readers of a buffer are tried."""
