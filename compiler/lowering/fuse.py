"""Fusion: the rules by which kernels become one. Each fusion is a rewrite that may be vetoed.

Kernels are visited in the order of the program. First each one inlines the values that it gathers:
    gather     a value read at few positions, which a loaded index gives
    recompute  the same, for a value with other readers that is as cheap to compute as to read
Then each one tries, until no rule applies, first for all kernels without siblings:
    1. inline     a producer without other readers, if its value is not computed more often
    2. merge      a producer with the same loops, so that its results stay in registers
    3. siblings   an earlier kernel that reads the same memory in the same loops, or another part of
                  it
At last a kernel that joins results of others becomes one for each part, which these fuse with:
    in parts      `cat`, `stack`, a pad, a scatter into a slice (`parts.py`)
Never fused: kernels of two devices; two with a step between them that must run between them (a
read of the second depends on it, or it reads memory that the second writes); kernels whose fusion
leaves too few outer iterations for the machine, makes inner loops of outer ones, raises the peak of
the memory (`peak.py`), or has more nodes than a compiler handles well in one function.

Source: the scores and conditions of `torch/_inductor/scheduler.py`. This one goes through the
program once, and looks for paths between steps only where a fusion is about to happen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ctk.compiler.lowering.align import Misaligned
from ctk.compiler.lowering.groups import CHEAP, Group, Groups, cost, leads
from ctk.compiler.lowering.ir import Allow, Kernel, Load, Program
from ctk.compiler.lowering.merge import inline, merge, sole_store
from ctk.compiler.lowering.parts import split
from ctk.compiler.lowering.peak import Peak
from ctk.compiler.lowering.walk import loads, values, walk
from ctk.compiler.sizes.index import ZERO, Indirect, Var, is_nonnegative, product


@dataclass(frozen=True, slots=True)
class FusionOptions:
    """Limits of fusion.

    Attributes:
        exact: Round where eager rounds.
        min_outer: With fewer outer iterations than this, a kernel leaves processors idle.
        small: A kernel of fewer iterations than this runs on one processor anyway.
    """

    exact: bool = False
    min_outer: int = 16
    small: int = 16384
    max_nodes: int = 128
    max_values: int = 400


def fuse(program: Program, allow: Allow, options: FusionOptions | None = None) -> Program:
    """Return a program with fewer kernels that computes the same; `allow` decides on each."""
    options = options or FusionOptions()
    fusion = _fusion_of(program, allow, options)
    for group in fusion.groups.kernels():
        while fusion.inline_gathered(group):
            pass
    for rules in (fusion.join_producers, fusion.grow):
        for group in fusion.groups.kernels():
            while rules(group):
                pass
    return _in_place(fusion.groups.result(), allow, options)


def _in_place(program: Program, allow: Allow, options: FusionOptions) -> Program:
    """Let the kernels that make parts of a result write them there."""
    fusion = _fusion_of(program, allow, options)
    apart = split(program, fusion.is_made_for, fusion.fuses, fusion.allows_parts)
    if apart is program:
        return program
    fusion = _fusion_of(apart, allow, options)
    for group in fusion.groups.kernels():
        while any(store.is_part for store in group.kernel.stores) and fusion.grow(group):
            pass
    return fusion.groups.result()


def _fusion_of(program: Program, allow: Allow, options: FusionOptions) -> "_Fusion":
    groups = Groups(program)
    return _Fusion(groups, Peak(groups), allow, options)


@dataclass(frozen=True, slots=True)
class _Fusion:
    """The rules of fusion on the groups of a program."""

    groups: Groups
    peak: Peak
    allow: Allow
    options: FusionOptions

    def inline_gathered(self, group: Group) -> bool:
        """Inline one value that a kernel gathers; return whether there was one.

        The logarithm of a softmax is needed for one class of each row only. So it is not written:
        its maximum and its sum are, and the loss computes the rest.
        """
        names = (n for n in _gathers(group.kernel) if n in self.groups.program.buffers)
        return any(self._inline_gather(name, group) for name in names)

    def grow(self, group: Group) -> bool:
        """Fuse a kernel with one other, if a rule applies; return whether one did."""
        return any(self._fuse(*pair) for pair in self._candidates(group))

    def join_producers(self, group: Group) -> bool:
        """Fuse a kernel with one whose result it reads, if a rule applies."""
        return any(self._fuse(other, group, True) for other in self.groups.producers(group))

    def is_made_for(self, name: str, kernel: Kernel) -> bool:
        """Return whether one kernel makes a buffer, and only another one reads it."""
        if name not in self.groups.program.buffers or self.groups.is_needed(name):
            return False
        readers = [group.step for group in self.groups.readers.get(name, ())]
        return len(self.groups.writers.get(name, ())) == 1 and readers == [kernel]

    def fuses(self, name: str, part: Kernel) -> bool:
        """Return whether a kernel of a part fuses with the maker of a buffer."""
        (maker,) = self.groups.writers[name]
        one = maker.step
        if not isinstance(one, Kernel) or not self.groups.are_compatible(one, part):
            return False
        try:
            merged = merge(one, part, exact=self.options.exact)
        except Misaligned:
            return False
        return self._is_short(merged) and self._is_wide(merged, (one, part))

    def allows_parts(self, kernel: Kernel) -> bool:
        return self.allow(f"in parts {kernel.name}", kernel.nodes)

    def _inline_gather(self, name: str, group: Group) -> bool:
        producers = list(self.groups.writers.get(name, ()))
        if len(producers) != 1 or self.groups.is_needed(name) or producers[0] in group.before:
            return False
        (first,) = producers
        one, two = first.step, group.kernel
        if not isinstance(one, Kernel) or id(one) in group.refused:
            return False
        if not self.groups.are_compatible(one, two):
            return False
        nodes = _nodes_of(first, group)
        is_sole_reader = list(self.groups.readers.get(name, ())) == [group]
        rule = "gather" if is_sole_reader else "recompute"
        fits = (
            len(nodes) <= self.options.max_nodes
            and _is_gathered(one, two)
            and (not leads(first, group) if is_sole_reader else self.groups.is_copyable(first))
        )
        fits = fits and self.peak.allows(first, group, stays=not is_sole_reader)
        kernel = self._inline(one, two) if fits else None
        if kernel is None or not self.allow(f"{rule} {one.name} -> {two.name}", nodes):
            group.refused.add(id(one))
            return False
        replace = self.groups.join if is_sole_reader else self.groups.copy_into
        replace(first, group, kernel, nodes)
        self.peak.forget(first, group)
        return True

    def _candidates(self, group: Group) -> Iterator[tuple[Group, Group, bool]]:
        """Yield pairs in program order, and whether the second reads a result of the first."""
        producers = self.groups.producers(group)
        for other in producers:
            yield other, group, True
        for other in self.groups.siblings(group):
            if other not in producers:
                yield other, group, False

    def _fuse(self, first: Group, second: Group, is_producer: bool) -> bool:
        one, two = first.kernel, second.kernel
        nodes = _nodes_of(first, second)
        if id(one) in second.refused or not self.groups.are_compatible(one, two):
            return False
        fits = len(nodes) <= self.options.max_nodes and not leads(first, second)
        fusion = self._fusion(first, second, is_producer) if fits else None
        if fusion is None or not self.peak.allows(first, second):
            second.refused.add(id(one))
            return False
        rule, kernel = fusion
        if not self.allow(f"{rule} {one.name} -> {two.name}", nodes):
            second.refused.add(id(one))
            return False
        self.groups.join(first, second, kernel, nodes)
        self.peak.forget(first, second)
        return True

    def _fusion(self, first: Group, second: Group, is_producer: bool) -> tuple[str, Kernel] | None:
        """Return the rule and the kernel of a fusion of two groups, if there is one."""
        one, two = first.kernel, second.kernel
        if is_producer and self._is_inlined(first, second):
            inlined = self._inline(one, two)
            if inlined is not None:
                return "inline", inlined
        try:
            kernel = merge(one, two, exact=self.options.exact)
        except Misaligned:
            return None
        if not self._is_wide(kernel, (one, two)) or self._is_turned(kernel, (one, two)):
            return None
        if not is_producer and len(_touched(kernel)) >= len(_touched(one)) + len(_touched(two)):
            return None  # siblings that read nothing in common
        return ("merge" if is_producer else "sibling", kernel) if self._is_short(kernel) else None

    def _inline(self, one: Kernel, two: Kernel) -> Kernel | None:
        try:
            kernel = inline(one, two, exact=self.options.exact)
        except Misaligned:
            return None
        return kernel if self._is_short(kernel) else None

    def _is_short(self, kernel: Kernel) -> bool:
        return len(values(kernel)) <= self.options.max_values

    def _is_inlined(self, first: Group, second: Group) -> bool:
        """Return whether only the second kernel reads the first one's result, never more often."""
        one, two = first.kernel, second.kernel
        store = sole_store(one)
        if store is None or self.groups.is_needed(store.buffer):
            return False
        writers, readers = self.groups.writers, self.groups.readers
        pair = list(writers[store.buffer]), list(readers.get(store.buffer, ()))
        if pair != ([first], [second]):
            return False
        indices = {load.index for load in loads(two) if load.buffer == store.buffer}
        if cost(one) < CHEAP:
            return True
        loops = {*two.outer, *(loop for sweep in two.sweeps for loop in sweep.inner)}
        mentioned = {atom for index in indices for atom in index.atoms if isinstance(atom, Var)}
        return len(indices) == 1 and loops <= mentioned

    def _is_wide(self, kernel: Kernel, parts: Sequence[Kernel]) -> bool:
        """Return whether a merged kernel leaves enough outer iterations for all processors."""
        limit, trips = self.options.min_outer, _trip_count(kernel.outer)
        if trips is None or trips >= limit or all(_trip_count(p.outer) == trips for p in parts):
            return True
        sizes = [_iterations(part) for part in parts]
        return all(size is not None and size < self.options.small for size in sizes)

    def _is_turned(self, kernel: Kernel, parts: Sequence[Kernel]) -> bool:
        """Return whether a merge makes inner loops of outer ones, only to share a broadcast value.

            mask[b, i, j], then scores[b, h, i, j] + mask[b, i, j]: outer loops b, i, j, inner h

        The rows of a softmax behind could not join such loops. The merge saves one read of a value
        that is smaller than the others. An inner loop over the parts of a `stack` reads
        nothing of its own.
        """
        sizes = [_iterations(part) for part in parts]
        if any(_inner(part) for part in parts):
            return False
        inner = dict.fromkeys(_inner(kernel), ZERO)
        if all(load.index.substitute(inner) == load.index for load in loads(kernel)):
            return False
        return any(size is None or size >= self.options.small for size in sizes)


def _inner(kernel: Kernel) -> list[Var]:
    return [loop for sweep in kernel.sweeps for loop in sweep.inner]


def _nodes_of(first: Group, second: Group) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first.nodes, *second.nodes)))


def _touched(kernel: Kernel) -> set[tuple[str, object]]:
    """Return each buffer that a kernel reads, with each index but for where it begins.

    Parts of one buffer count as one wherever they begin, also apart from each other: one kernel for
    parts of the same loops is as fast where memory is the limit, and one call less where it is not.
    """
    return {
        (load.buffer, tuple(term for term in load.index.terms if term[0])) for load in loads(kernel)
    }


def _trip_count(loops: Sequence[Var]) -> int | None:
    """Return the number of iterations of some loops, if it is known."""
    return product([loop.size for loop in loops]).number


def _iterations(kernel: Kernel) -> int | None:
    """Return how often the longest sweep of a kernel runs, if it is known."""
    counts = [_trip_count((*kernel.outer, *sweep.inner)) for sweep in kernel.sweeps]
    return None if None in counts else max(count or 0 for count in counts)


def _gathers(kernel: Kernel) -> list[str]:
    """Return the buffers that a kernel reads at computed positions only."""
    found = {load.buffer: True for load in loads(kernel)}
    for load in loads(kernel):
        found[load.buffer] &= any(isinstance(atom, Indirect) for atom in load.index.atoms)
    return [buffer for buffer, only in found.items() if only]


def _is_gathered(producer: Kernel, consumer: Kernel) -> bool:
    """Return whether a producer makes one value, of which the other needs at most every second."""
    store = sole_store(producer)
    if store is None:
        return False
    needed = ZERO
    for sweep in consumer.sweeps:
        loops = product([loop.size for loop in (*consumer.outer, *sweep.inner)])
        found = walk(*sweep.statements)
        read = {v.index for v in found if isinstance(v, Load) and v.buffer == store.buffer}
        needed = needed + loops * len(read)
    made = product([loop.size for loop in producer.outer])
    return is_nonnegative(made - needed * 2)
