"""Make one kernel of two: by inlining the value of one, or by running both in the same loops.

    inline   the consumer computes the producer's value in place of each load; any index
    merge    same outer loops; the second takes results of the first from the same iteration

Both return a new kernel, or raise `Misaligned` with the reason. Stores that became unnecessary
stay: `groups.py` knows other readers, and prunes them.

Rules of a merge, `first` before `second` in the program:
    1. each load of a buffer that `first` writes is at the index of that store, in shared loops, and
       becomes the stored value
    2. a buffer that `second` writes and `first` reads (or writes) is touched at one index only, and
       in a kernel without inner loops; its store comes behind all its readers (`own_memory.py`)
    3. a sweep of `second` joins an earlier sweep of the same inner loops if no operand is computed
       later
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from ctk.compiler.lowering.align import Link, Misaligned, align
from ctk.compiler.lowering.ir import (
    Const,
    Kernel,
    Load,
    Local,
    Op,
    Reduce,
    Scan,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.narrow import narrowed
from ctk.compiler.lowering.vocabulary import COMPARISON
from ctk.compiler.lowering.walk import Rewriting, indirect, loads, walk
from ctk.compiler.sizes.index import ONE, Division, Index, Var

Change: TypeAlias = Callable[[Value], Value | None]

_LINKS = 8
"""How many pairs of indices are compared to find common loops."""


def inline(producer: Kernel, consumer: Kernel, *, exact: bool) -> Kernel:
    """Return the consumer with the producer's one value computed where it was read.

    Raises:
        Misaligned: The producer does more than store one value for each outer iteration, or the
            value of an element cannot be computed without dividing indices.
    """
    store = sole_store(producer)
    if store is None:
        raise Misaligned(f"{producer.name} does more than compute one value")

    made: dict[Index, Value] = {}

    def change(value: Value) -> Value | None:
        if not isinstance(value, Load) or value.buffer != store.buffer:
            return None
        if value.index not in made:
            where = position_of(producer.outer, store.index, value.index)
            made[value.index] = Rewriting(variables=where).value(store.value)
        return made[value.index]

    changed = Rewriting(change=forwarding(change, exact=exact), keeps_casts=_needs_rounding)
    sweeps = map(changed.sweep, consumer.sweeps)
    result = _in_place(replace(consumer, sweeps=tuple(sweeps)))
    before = _divisions(producer) + _divisions(consumer)
    if _divisions(result) > before:
        result = narrowed(result)
    if _divisions(result) > before:
        raise Misaligned(f"{consumer.name} reads {store.buffer} in another shape")
    return result


def merge(first: Kernel, second: Kernel, *, exact: bool) -> Kernel:
    """Return one kernel with the stores of both.

    Raises:
        Misaligned: Their loops differ, or the second needs a value of another iteration.
    """
    a, b = align(first, second, list(islice(_links(first, second), _LINKS)))
    stored = {store.buffer: store for store in a.stores}
    scanned = {statement.name for statement in a.statements if isinstance(statement, Scan)}

    def change(value: Value) -> Value | None:
        if not isinstance(value, Load) or value.buffer not in stored:
            return None
        store = stored[value.buffer]
        if store.is_part:
            raise Misaligned(f"{first.name} writes a part of {value.buffer}")
        if store.mode != "set" or store.guard is not None or store.index != value.index:
            raise Misaligned(f"{second.name} reads {value.buffer} of another iteration")
        if scanned and not scanned.isdisjoint(locals_of(store)):
            raise Misaligned(f"{value.buffer} is the result of a scan")
        return store.value

    changed = Rewriting(change=forwarding(change, exact=exact), keeps_casts=_needs_rounding)
    sweeps = _compacted([*a.sweeps, *map(changed.sweep, b.sweeps)])
    return _in_place(Kernel(second.name, a.outer, tuple(sweeps), (), first.device))


def sole_store(kernel: Kernel) -> Store | None:
    """Return the store of a kernel that computes one value for each outer iteration, else None."""
    if len(kernel.sweeps) != 1 or kernel.sweeps[0].inner or len(kernel.statements) != 1:
        return None
    store = kernel.statements[0]
    if not isinstance(store, Store) or store.mode != "set" or store.guard is not None:
        return None
    return None if store.is_part else store


def position_of(loops: Sequence[Var], store: Index, at: Index) -> dict[Var, Index]:
    """Return the values of the loops at which a store writes the element `at`.

    Raises:
        Misaligned: The store does not write each element of dense memory once.
    """
    strides = {loop: store.factor_of(loop) for loop in loops}
    step, where = ONE, dict[Var, Index]()
    left = list(loops)
    while left:
        loop = next((each for each in left if strides[each] == step), None)
        if loop is None:
            raise Misaligned("its memory is written with gaps")
        left.remove(loop)
        part = at // step
        where[loop] = part % loop.size if left else part
        step = step * loop.size
    rest = store.substitute(dict.fromkeys(loops, 0))
    if rest.terms:
        raise Misaligned("it writes a part of its memory")
    return where


def forwarding(change: Change, *, exact: bool) -> Change:
    """Return a change of values that also leaves out a rounding that is undone at once."""

    def changed(value: Value) -> Value | None:
        new = change(value)
        if exact:
            return new
        return _unrounded(value if new is None else new) or new

    return changed


def _needs_rounding(op: Op) -> bool:
    """Return whether an operation gives another result for an operand that is not rounded.

    A number of 16 bits equals another one, or the maximum of some, only after both are rounded. The
    order of a number and a constant is the same without.
    """
    is_equality = op.name in ("eq", "ne")
    return is_equality or (
        op.name in COMPARISON and not any(isinstance(each, Const) for each in op.args)
    )


def pruned(kernel: Kernel, needed: Container[str]) -> Kernel | None:
    """Return a kernel with its stores to `needed` buffers only; None if no store is left."""
    used: set[str] = set()
    kept: list[Sweep] = []
    for sweep in reversed(kernel.sweeps):
        statements: list[Statement] = []
        for statement in reversed(sweep.statements):
            if _is_needed(statement, needed, used):
                statements.append(statement)
                used.update(locals_of(statement))
        if statements:
            kept.append(Sweep(sweep.inner, tuple(reversed(statements))))
    return replace(kernel, sweeps=tuple(reversed(kept))) if kept else None


def locals_of(statement: Statement) -> frozenset[str]:
    """Return the results of reductions and scans that a statement uses."""
    return frozenset(value.name for value in walk(statement) if isinstance(value, Local))


def _is_needed(statement: Statement, needed: Container[str], used: set[str]) -> bool:
    if isinstance(statement, Store):
        return statement.buffer in needed
    names = statement.names if isinstance(statement, Reduce) else (statement.name,)
    return not used.isdisjoint(names)


def _unrounded(value: Value) -> Value | None:
    """Rule, not exact: `float32(bfloat16(v)) -> v` for a float32 v that is not a constant."""
    if not isinstance(value, Op) or value.name != "cast":
        return None
    (inner,) = value.args
    if not isinstance(inner, Op) or inner.name != "cast" or inner.args[0].dtype != value.dtype:
        return None
    if isinstance(inner.args[0], Const):  # a lowering asks for this rounding
        return None
    narrow = inner.dtype.is_floating_point and inner.dtype.itemsize < value.dtype.itemsize
    return inner.args[0] if value.dtype.is_floating_point and narrow else None


def _links(first: Kernel, second: Kernel) -> Iterator[Link]:
    """Yield pairs of indices: of buffers that pass from first to second, then of shared ones."""
    theirs = loads(second)
    for store in first.stores:
        yield from ((store.index, load.index) for load in theirs if load.buffer == store.buffer)
    ours = sorted(loads(first), key=lambda load: len(load.index.terms), reverse=True)
    for load in ours:
        yield from ((load.index, other.index) for other in theirs if other.buffer == load.buffer)
    for load in ours:
        yield from ((load.index, s.index) for s in second.stores if s.buffer == load.buffer)


def _in_place(kernel: Kernel) -> Kernel:
    """Return a kernel that reads no element after writing it.

    Each of its loads reads the contents before the kernel: values written since are at hand.

    Raises:
        Misaligned: It writes an element that another iteration may read, or writes it twice, or two
            of its stores each read the element that the other writes.
    """
    touched: dict[str, set[Index]] = {}
    for load in loads(kernel):
        touched.setdefault(load.buffer, set()).add(load.index)
    stores = Counter(store.buffer for store in kernel.stores if not store.is_part)
    written: set[str] = set()
    is_pointwise = len(kernel.sweeps) == 1 and not any(sweep.inner for sweep in kernel.sweeps)
    for store in kernel.stores:
        if stores[store.buffer] > 1:
            raise Misaligned(f"both write {store.buffer}")
        where = touched.get(store.buffer)
        if not where:
            continue
        if where != {store.index} or not is_pointwise or indirect(store.index):
            raise Misaligned(f"{store.buffer} is written where another iteration may read it")
        written.add(store.buffer)
    if not written:
        return kernel
    return replace(kernel, sweeps=tuple(_writes_last(each, written) for each in kernel.sweeps))


def _writes_last(sweep: Sweep, written: Container[str]) -> Sweep:
    """Move each store to memory that the sweep also reads behind the readers.

    Raises:
        Misaligned: Two stores each read the element that the other writes.
    """
    waiting = [s for s in sweep.statements if isinstance(s, Store) and s.buffer in written]
    ordered = [statement for statement in sweep.statements if statement not in waiting]
    while waiting:
        free = next((s for s in waiting if not any(_reads(o, s) for o in waiting)), None)
        if free is None:
            raise Misaligned(f"{waiting[0].buffer} is read where it is written, in a circle")
        waiting.remove(free)
        ordered.append(free)
    return Sweep(sweep.inner, tuple(ordered))


def _reads(statement: Store, store: Store) -> bool:
    found = (each.buffer for each in walk(statement) if isinstance(each, Load))
    return statement is not store and store.buffer in found


def _compacted(sweeps: Sequence[Sweep]) -> list[Sweep]:
    """Move each sweep into the first one of the same loops that all its operands precede."""
    slots: list[tuple[tuple[Var, ...], list[Statement]]] = []
    made: dict[str, int] = {}
    for sweep in sweeps:
        needed = [
            made[name] + 1
            for statement in (sweep.statements if made else ())
            for name in locals_of(statement)
            if name in made
        ]
        first = max(needed, default=0)
        found = [n for n in range(first, len(slots)) if slots[n][0] == sweep.inner]
        if not found:
            slots.append((sweep.inner, []))
            found = [len(slots) - 1]
        slots[found[0]][1].extend(sweep.statements)
        for statement in sweep.statements:
            if isinstance(statement, Reduce):
                made.update(dict.fromkeys(statement.names, found[0]))
    return _sunk([Sweep(inner, tuple(statements)) for inner, statements in slots])


def _sunk(sweeps: list[Sweep]) -> list[Sweep]:
    """Put stores of one value for each row behind all sweeps, so that these follow each other.

    A kernel with inner loops reads nothing that it writes (`_in_place`).
    """
    alone = [s for s in sweeps if not s.inner and all(isinstance(e, Store) for e in s.statements)]
    others = [sweep for sweep in sweeps if sweep not in alone]
    if not alone or not others:
        return sweeps
    return [
        *others,
        Sweep((), tuple(statement for sweep in alone for statement in sweep.statements)),
    ]


def _divisions(kernel: Kernel) -> int:
    """Return how many different quotients and remainders the indices of a kernel have."""
    atoms = {atom for load in loads(kernel) for atom in load.index.atoms}
    return sum(isinstance(atom, Division) for atom in atoms)
