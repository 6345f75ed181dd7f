"""Write parts of a result in place: a kernel that joins parts becomes one kernel for each part.

    for i < n, j < 96:  cat[i*96 + j] = a[i*32 + j] if j < 32 else b[i*64 + j - 32]
becomes
    for i < n, j < 32:  cat[i*96 + j] = a[i*32 + j]
    for i < n, j < 64:  cat[i*96 + j + 32] = b[i*64 + j]

Then the first fuses with the kernel that makes `a`, the second with that of `b`, and both buffers
are gone. A part is apart from the others if its condition bounds loop variables by numbers or
sizes, of which the second is not below the first (a part that a slice cut off has negative loops),
and some variable separates it from each condition that is asked before. The elements of no
part (of a pad, or a scatter into a slice) are written by the kernel as it was, under a guard.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch

from ctk.compiler.lowering.ir import (
    Const,
    Guarded,
    Kernel,
    Op,
    Position,
    Program,
    Step,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.walk import Rewriting, reads
from ctk.compiler.sizes.index import (
    ZERO,
    Index,
    Var,
    as_index,
    is_nonnegative,
    larger,
    of_atom,
    product,
    smaller,
)

LIMIT = 16
"""A result of more parts stays one kernel."""


@dataclass(frozen=True, slots=True)
class Part:
    """The value of some elements of a result, and the bounds of the loops around it."""

    bounds: Mapping[Var, tuple[Index, Index]]
    chosen: Guarded

    def loops(self, outer: Sequence[Var]) -> tuple[Var, ...]:
        return tuple(Var(v.name, b[1] - b[0]) if (b := self.bounds.get(v)) else v for v in outer)

    def is_apart(self, other: "Part") -> bool:
        """Return whether a loop variable separates two parts."""
        return any(
            is_nonnegative(theirs[0] - ours[1]) or is_nonnegative(ours[0] - theirs[1])
            for var, ours in self.bounds.items()
            if (theirs := other.bounds.get(var)) is not None
        )


def parts_of(kernel: Kernel) -> list[Part]:
    """Return the parts of which a kernel writes each apart from the others; none if there are none.

    They are in the order in which their conditions are asked.
    """
    store = _sole_store(kernel)
    parts: list[Part] = []
    value: Value | None = store.value if store is not None else None
    while isinstance(value, Guarded):
        bounds = _bounds(value.condition, kernel.outer)
        if bounds is None or not all(is_nonnegative(high - low) for low, high in bounds.values()):
            return []
        part = Part(bounds, value)
        if len(parts) == LIMIT or not all(part.is_apart(other) for other in parts):
            return []
        parts.append(part)
        value = value.other
    return parts


def in_parts(kernel: Kernel) -> list[Kernel]:
    """Return the kernels that write each part, and one for the rest if there is a rest.

    A part may be of parts itself: that of a `cat` in another one.
    """
    parts, store = parts_of(kernel), _sole_store(kernel)
    if not parts or store is None:
        return [kernel]
    made = [_part(kernel, store, part, number) for number, part in enumerate(parts)]
    total = product([loop.size for loop in kernel.outer])
    covered = sum((product([v.size for v in each.outer]) for each in made), ZERO)
    rest = [] if covered == total else [_rest(kernel, store, parts)]
    return [*(piece for each in made for piece in in_parts(each)), *rest]


def _sole_store(kernel: Kernel) -> Store | None:
    """Return the store of a kernel that computes one value, of a part too."""
    store = kernel.statements[0] if len(kernel.statements) == 1 else None
    if not isinstance(store, Store) or store.mode != "set" or store.guard is not None:
        return None
    return None if any(sweep.inner for sweep in kernel.sweeps) else store


def _part(kernel: Kernel, store: Store, part: Part, number: int) -> Kernel:
    loops = part.loops(kernel.outer)
    shifted = {
        old: of_atom(new) + part.bounds[old][0]
        for old, new in zip(kernel.outer, loops, strict=True)
        if old in part.bounds
    }
    value = replace(store, value=part.chosen.value, is_part=True)
    return replace(
        kernel,
        name=f"{kernel.name}.{number}",
        outer=tuple(loop for loop in loops if loop.size != as_index(1)),
        sweeps=(Sweep((), (Rewriting(_without_single(loops, shifted)).statement(value),)),),
    )


def _without_single(loops: Sequence[Var], shifted: Mapping[Var, Index]) -> Mapping[Var, Index]:
    """Put 0 in the place of the variables of loops of one iteration."""
    single = {loop: ZERO for loop in loops if loop.size == as_index(1)}
    return {old: index.substitute(single) for old, index in shifted.items()}


def _rest(kernel: Kernel, store: Store, parts: Sequence[Part]) -> Kernel:
    value = store.value
    for part in parts:
        assert value is part.chosen
        value = part.chosen.other
    inside = [part.chosen.condition for part in parts]
    either = reduce(lambda a, b: Op("or", (a, b), torch.bool), inside)
    outside = Op("not", (either,), torch.bool)
    statement = replace(store, value=value, guard=outside, is_part=True)
    return replace(kernel, name=f"{kernel.name}.rest", sweeps=(Sweep((), (statement,)),))


def _bounds(condition: Value, loops: Sequence[Var]) -> dict[Var, tuple[Index, Index]] | None:
    """Return the first value of each bounded variable, and the one behind its last."""
    bounds: dict[Var, tuple[Index, Index]] = {}
    for test in _tests(condition):
        found = _bound(test, loops)
        if found is None:
            return None
        var, low, high = found
        old = bounds.get(var, (ZERO, var.size))
        bounds[var] = larger(old[0], low), smaller(old[1], high)
    return bounds


def _tests(condition: Value) -> Iterator[Value]:
    if isinstance(condition, Op) and condition.name == "and":
        for each in condition.args:
            yield from _tests(each)
    else:
        yield condition


def _bound(test: Value, loops: Sequence[Var]) -> tuple[Var, Index, Index] | None:
    if not isinstance(test, Op) or test.name not in ("lt", "le", "gt", "ge", "eq"):
        return None
    left, right = map(_index, test.args)
    var = next((loop for loop in loops if left == of_atom(loop)), None)
    if var is None or right is None or not right.atoms.isdisjoint(loops):
        return None
    if test.name in ("lt", "le"):
        return var, ZERO, right if test.name == "lt" else right + 1
    if test.name in ("gt", "ge"):
        return var, right if test.name == "ge" else right + 1, var.size
    return var, right, right + 1


def _index(value: Value) -> Index | None:
    if isinstance(value, Position):
        return value.index
    if isinstance(value, Const) and not value.dtype.is_floating_point:
        return as_index(int(value.value))
    return None


def split(
    program: Program,
    is_made_for: Callable[[str, Kernel], bool],
    fuses: Callable[[str, Kernel], bool],
    allow: Callable[[Kernel], bool],
) -> Program:
    """Return a program in which kernels that join results of others are apart.

    Args:
        program: A fused program.
        is_made_for: Whether a buffer is made by one kernel, and for another one only.
        fuses: Whether a kernel of a part fuses with the maker of a buffer.
        allow: Decides on each kernel.
    """
    steps: list[Step] = []
    for step in program.steps:
        made = [step]
        if isinstance(step, Kernel) and 1 < len(kernels := in_parts(step)) <= LIMIT:
            made_for = [name for name in sorted(reads(step)) if is_made_for(name, step)]
            gain = sum(any(fuses(n, k) for n in made_for if n in reads(k)) for k in kernels)
            if gain and 2 * gain >= len(kernels) and allow(step):
                made = kernels
        steps += made
    return program if len(steps) == len(program.steps) else replace(program, steps=steps)
