"""Give two kernels the same loops, if they walk their common buffers alike.

Loops are compared by their strides in a buffer that both kernels touch. A loop of stride 1 and size
32 is split at the stride 8 of the other kernel, and then both have a loop (stride 8, size 4) and
one (stride 1, size 8), which are the same:

    first   for f < 32:  B[f] = ...                         B[i*8 + j]   i < 4, j < 8
    second  for i < 4:  for r < 8:  t += B[i*8 + r]         B[i*8 + r]

Loops are only split, never joined: no quotient or remainder appears. Outer loops may be reordered,
because their iterations are independent; so may inner ones, but for those of a scan and of the
position of an extreme (`Sweep.is_ordered`), which stay as they are. The outer loops of the result
are those of the kernel that has inner loops; further loops of a pointwise kernel go inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ctk.compiler.lowering.ir import Kernel, Sweep
from ctk.compiler.lowering.layout import number_in
from ctk.compiler.lowering.walk import Rewriting
from ctk.compiler.sizes.index import ZERO, Index, Var, as_index, is_less, of_atom

Link: TypeAlias = tuple[Index, Index]
"""Where the two kernels touch one buffer: an index of the first, and one of the second."""


class Misaligned(Exception):
    """Two kernels cannot have the same loops; the message is the reason."""


@dataclass(slots=True)
class _Loop:
    """A loop of a kernel, or a part of a split one; its partner is the equal one of the other."""

    var: Var
    is_outer: bool
    partner: _Loop | None = None


@dataclass(slots=True)
class _Side:
    """A kernel whose loops are being split.

    `parts` are those of each of its own loops, from the outermost. A pure side has outer loops
    only, so that any of them may go inside.
    """

    kernel: Kernel
    prefix: str
    loops: list[_Loop] = field(default_factory=list[_Loop])
    parts: dict[Var, list[_Loop]] = field(default_factory=dict[Var, list["_Loop"]])

    def __post_init__(self) -> None:
        inner = dict.fromkeys(loop for sweep in self.kernel.sweeps for loop in sweep.inner)
        for is_outer, loops in ((True, self.kernel.outer), (False, tuple(inner))):
            for number, own in enumerate(loops):
                name = f"{self.prefix}{'o' if is_outer else 'n'}{number}"
                loop = _Loop(Var(name, own.size), is_outer)
                self.loops.append(loop)
                self.parts[own] = [loop]

    @property
    def is_pure(self) -> bool:
        return all(loop.is_outer for loop in self.loops)

    def index(self, index: Index) -> Index:
        """Return an index expression of the kernel, in the loops as they are by now."""
        return index.substitute(
            {own: number_in([loop.var for loop in parts]) for own, parts in self.parts.items()}
        )

    def split(self, loop: _Loop, inner_size: Index) -> None:
        """Split a loop in two, the inner of which has this size."""
        name, is_outer = loop.var.name, loop.is_outer
        high = _Loop(Var(f"{name}h", loop.var.size // inner_size), is_outer)
        low = _Loop(Var(f"{name}l", inner_size), is_outer)
        for loops in (self.loops, *self.parts.values()):
            if loop in loops:
                at = loops.index(loop)
                loops[at : at + 1] = [high, low]


def align(first: Kernel, second: Kernel, links: Sequence[Link]) -> tuple[Kernel, Kernel]:
    """Return two kernels with the same outer loops, and inner loops that match as the same.

    `links` are pairs of indices into one buffer each, the most important first.

    Raises:
        Misaligned: Their loops do not match.
    """
    a, b = _Side(first, "a"), _Side(second, "b")
    for ours, theirs in dict.fromkeys(links):
        if _unmatched(a) and _unmatched(b):
            _match(a, b, ours, theirs)
    lead, other = (b, a) if a.is_pure and not b.is_pure else (a, b)
    if a.is_pure and b.is_pure and _unmatched(a) > _unmatched(b):
        lead, other = b, a
    outer = [loop for loop in lead.loops if loop.is_outer]
    for loop in outer:
        if loop.partner is None:
            raise Misaligned(f"a loop of {loop.var.size} of {lead.kernel.name} has no partner")
    taken = {id(loop.partner) for loop in outer}
    if not other.is_pure and any(each.is_outer and id(each) not in taken for each in other.loops):
        raise Misaligned(f"{other.kernel.name} has more outer loops")
    names = _named(lead, other, outer)
    return _renamed(a, names, outer), _renamed(b, names, outer)


def _match(a: _Side, b: _Side, ours: Index, theirs: Index) -> None:
    """Split the loops of both at each other's strides in a buffer, and pair equal ones."""
    mine, others = _strides(a, ours), _strides(b, theirs)
    while _split(a, mine, others):
        mine = _strides(a, ours)
    while _split(b, others, mine):
        others = _strides(b, theirs)
    free = [(loop, stride) for loop, stride in others if loop.partner is None]
    for loop, stride in mine:
        if loop.partner is not None:
            continue
        for candidate, other in free:
            is_alike = candidate.var.size == loop.var.size and other == stride
            # An outer loop of a kernel with inner ones stays out.
            may_pair = loop.is_outer == candidate.is_outer or a.is_pure or b.is_pure
            if candidate.partner is None and is_alike and may_pair:
                loop.partner, candidate.partner = candidate, loop
                break


def _split(side: _Side, own: Sequence[_Strided], others: Sequence[_Strided]) -> bool:
    """Split a loop of a side at a stride of the other; tell whether there was one to split."""
    for loop, stride in own:
        for _, other in others if loop.partner is None else ():
            inner = _cut(stride, loop.var.size, other)
            if inner is not None:
                side.split(loop, inner)
                return True
    return False


_Strided: TypeAlias = tuple[_Loop, Index]


def _strides(side: _Side, index: Index) -> list[_Strided]:
    expression = side.index(index)
    strides = [(loop, expression.factor_of(loop.var)) for loop in side.loops]
    return [(loop, stride) for loop, stride in strides if stride is not None and stride != ZERO]


def _cut(stride: Index, size: Index, other: Index) -> Index | None:
    """Return the inner size at which a loop is split by a stride within its reach, if it is one."""
    first, second, count = stride.number, other.number, size.number
    if first is not None and second is not None and count is not None:  # the most frequent case
        if not first < second < first * count or second % first or count % (second // first):
            return None
        return as_index(second // first)
    if stride == other or not is_less(stride, other) or not is_less(other, stride * size):
        return None
    inner = other // stride
    if inner * stride != other or (size // inner) * inner != size:
        return None
    return inner


def _unmatched(side: _Side) -> int:
    return sum(loop.partner is None for loop in side.loops)


def _named(lead: _Side, other: _Side, outer: Sequence[_Loop]) -> dict[int, Var]:
    names: dict[int, Var] = {}
    inner = 0
    for number, loop in enumerate(outer):
        assert loop.partner is not None  # align has looked
        names[id(loop)] = names[id(loop.partner)] = Var(f"i{number}", loop.var.size)
    for loop in (*lead.loops, *other.loops):
        if id(loop) in names:
            continue
        names[id(loop)] = Var(f"r{inner}", loop.var.size)
        if loop.partner is not None:
            names[id(loop.partner)] = names[id(loop)]
        inner += 1
    return names


def _renamed(side: _Side, names: dict[int, Var], outer: Sequence[_Loop]) -> Kernel:
    shared = tuple(names[id(loop)] for loop in outer)
    variables = {
        own: number_in([names[id(loop)] for loop in parts]) for own, parts in side.parts.items()
    }
    changed = {own: number for own, number in variables.items() if number != of_atom(own)}
    rewriting = Rewriting(variables=changed)
    inside = [names[id(loop)] for loop in side.loops if names[id(loop)] not in shared]
    sweeps: list[Sweep] = []
    for sweep in side.kernel.sweeps:
        own = tuple(names[id(part)] for loop in sweep.inner for part in side.parts[loop])
        chosen = own if sweep.inner else inside if side.is_pure else ()
        loops = tuple(sorted(chosen, key=lambda loop: int(loop.name[1:])))
        if sweep.is_ordered and (loops != own or len(own) != len(sweep.inner)):
            raise Misaligned(f"the order of the iterations of {side.kernel.name} counts")
        statements = sweep.statements
        if changed:
            statements = tuple(map(rewriting.statement, statements))
        sweeps.append(Sweep(loops, statements))
    old = side.kernel
    return Kernel(old.name, shared, tuple(sweeps), old.nodes, old.device)
