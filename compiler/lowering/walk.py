"""Walk, change and number the values of the loop IR, and list the arguments of a kernel."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from ctk.compiler.lowering.ir import (
    Const,
    Guarded,
    Kernel,
    Load,
    Local,
    Op,
    Position,
    Statement,
    Store,
    Sweep,
    Value,
    indirect_value,
)
from ctk.compiler.sizes.index import Atom, Index, IndexLike, Indirect, Symbol, Var
from ctk.compiler.sizes.size_guards import symbols_of


def operands(value: Value) -> tuple[Value, ...]:
    """Return the values that a value is computed of, those within its index too."""
    if isinstance(value, Op):
        return value.args
    if isinstance(value, Guarded):
        return value.condition, value.value, value.other
    if isinstance(value, (Load, Position)):
        return indirect(value.index)
    return ()


def indirect(index: Index) -> tuple[Value, ...]:
    """Return the values that an index expression is computed of, in the order of their making."""
    return tuple(map(indirect_value, _computed(index)))


def _computed(index: Index) -> list[Indirect]:
    found = [atom for atom in index.atoms if isinstance(atom, Indirect)]
    return sorted(found, key=lambda atom: atom.serial) if len(found) > 1 else found


def values_of(statement: Statement) -> tuple[Value, ...]:
    """Return the values that a statement uses directly."""
    if isinstance(statement, Store):
        guard = () if statement.guard is None else (statement.guard,)
        return (*indirect(statement.index), *guard, statement.value)
    return (statement.value,)


def walk(*statements: Statement) -> list[Value]:
    """Return every value below some statements once, operands first."""
    seen: dict[int, Value] = {}
    stack: list[tuple[Value, bool]] = []
    for statement in reversed(statements):
        stack.extend((value, False) for value in reversed(values_of(statement)))
    while stack:
        value, done = stack.pop()
        key = id(value)
        if key in seen:
            continue
        below = () if done else operands(value)
        if not below:
            seen[key] = value
            continue
        stack.append((value, True))
        for each in reversed(below):
            if id(each) not in seen:
                stack.append((each, False))
    return list(seen.values())


def origins(statement: Statement) -> tuple[str, ...]:
    """Return the nodes whose values a statement computes, that of the statement last."""
    own = statement.origin
    found = (each.origin for each in walk(statement) if isinstance(each, (Op, Guarded)))
    return (*(name for name in dict.fromkeys(found) if name and name != own), own)


def indices_of(statements: Iterable[Statement]) -> list[Index]:
    """Return every index expression of some statements: of their stores, loads and positions."""
    indexes: list[Index] = []
    for statement in statements:
        if isinstance(statement, Store):
            indexes.append(statement.index)
        indexes += [v.index for v in walk(statement) if isinstance(v, (Load, Position))]
    return indexes


def values(kernel: Kernel) -> tuple[Value, ...]:
    """Return every value of a kernel once, operands first."""
    known = kernel.found_values
    if not known:
        known.append(tuple(walk(*kernel.statements)))
    return known[0]


def loads(kernel: Kernel) -> tuple[Load, ...]:
    """Return the loads of a kernel, each once, in the order of its statements."""
    known = kernel.found_loads
    if not known:
        known.append(tuple([value for value in values(kernel) if isinstance(value, Load)]))
    return known[0]


def reads(kernel: Kernel) -> frozenset[str]:
    """Return the buffers that a kernel loads from; a store that combines is a write."""
    return frozenset(load.buffer for load in loads(kernel))


def writes(kernel: Kernel) -> frozenset[str]:
    """Return the buffers that a kernel writes."""
    return frozenset(store.buffer for store in kernel.stores)


@dataclass(frozen=True, slots=True)
class Arguments:
    """The buffers and sizes of a kernel by store, load and mention: the order of all printers."""

    written: tuple[str, ...]
    read: tuple[str, ...]
    symbols: tuple[Symbol, ...]

    @property
    def buffers(self) -> tuple[str, ...]:
        return (*self.written, *self.read)


def arguments_of(kernel: Kernel) -> Arguments:
    """Return the arguments of a kernel: buffers written, buffers read, sizes."""
    written = tuple(dict.fromkeys(store.buffer for store in kernel.stores))
    read = dict.fromkeys(load.buffer for load in loads(kernel) if load.buffer not in written)
    return Arguments(written, tuple(read), symbols(kernel))


def symbols(kernel: Kernel) -> tuple[Symbol, ...]:
    """Return the sizes that a kernel mentions, by name."""
    known = kernel.found_symbols
    if not known:
        known.append(tuple(symbols_of(_indices(kernel))))
    return known[0]


def _indices(kernel: Kernel) -> list[Index]:
    loops = (*kernel.outer, *(loop for sweep in kernel.sweeps for loop in sweep.inner))
    indices = [*(loop.size for loop in loops), *indices_of(kernel.statements)]
    return [*indices, *(atom.size for index in indices for atom in _computed(index))]


@dataclass(slots=True)
class Rewriting:
    """Change values from the leaves up; an unchanged value stays the same object.

    `change` gets a value whose operands are changed, and returns None to leave it. It does not get
    the casts that are operands of an operation for which `keeps_casts` holds.
    """

    variables: Mapping[Var, IndexLike] = field(default_factory=dict[Var, "IndexLike"])
    change: Callable[[Value], Value | None] = lambda _: None
    keeps_casts: Callable[[Op], bool] = lambda _: False
    _made: dict[int, tuple[Value, Value]] = field(default_factory=dict[int, tuple[Value, Value]])
    _indices: dict[Index, Index] = field(default_factory=dict[Index, Index])

    def value(self, value: Value) -> Value:
        """Return a value changed."""
        known = self._made.get(id(value))
        if known is not None:
            return known[1]
        new = self._rebuilt(value)
        changed = self.change(new)
        result = new if changed is None else changed
        self._made[id(value)] = (value, result)
        return result

    def index(self, index: Index) -> Index:
        """Return an index expression changed."""
        known = self._indices.get(index)
        if known is None:
            moving = any(isinstance(a, Indirect) or a in self.variables for a in index.atoms)
            known = self._indices[index] = index.replace(self._atom) if moving else index
        return known

    def statement(self, statement: Statement) -> Statement:
        """Return a statement changed."""
        if isinstance(statement, Store):
            guard = None if statement.guard is None else self.value(statement.guard)
            index, value = self.index(statement.index), self.value(statement.value)
            return replace(statement, index=index, value=value, guard=guard)
        return replace(statement, value=self.value(statement.value))

    def sweep(self, sweep: Sweep) -> Sweep:
        """Return a sweep with changed statements in the same loops."""
        return Sweep(sweep.inner, tuple(map(self.statement, sweep.statements)))

    def _atom(self, atom: Atom) -> IndexLike | None:
        if isinstance(atom, Var):
            return self.variables.get(atom)
        if isinstance(atom, Indirect):
            new = self.value(indirect_value(atom))
            if new is not atom.value:
                return Index((((Indirect(new, atom.size),), 1),))
        return None

    def _rebuilt(self, value: Value) -> Value:
        if isinstance(value, Op):
            args = tuple(map(self._below if self.keeps_casts(value) else self.value, value.args))
            same = all(a is b for a, b in zip(args, value.args, strict=True))
            return value if same else Op(value.name, args, value.dtype, value.origin)
        if isinstance(value, Guarded):
            parts = self._parts(value)
            same = all(a is b for a, b in zip(parts, operands(value), strict=True))
            return value if same else Guarded(*parts, value.origin)
        if isinstance(value, (Load, Position)):
            index = self.index(value.index)
            return value if index == value.index else replace(value, index=index)
        return value

    def _below(self, value: Value) -> Value:
        """Return a value changed; a cast only in its operand."""
        is_cast = isinstance(value, Op) and value.name == "cast"
        return self._rebuilt(value) if is_cast else self.value(value)

    def _parts(self, value: Guarded) -> tuple[Value, Value, Value]:
        return self.value(value.condition), self.value(value.value), self.value(value.other)


def renamed(kernel: Kernel, names: Mapping[str, str]) -> Kernel:
    """Return a kernel with other names for some of its buffers."""

    def change(value: Value) -> Value | None:
        if isinstance(value, Load) and value.buffer in names:
            return replace(value, buffer=names[value.buffer])
        return None

    def rename(statement: Statement) -> Statement:
        changed = rewriting.statement(statement)
        if not isinstance(changed, Store):
            return changed
        return replace(changed, buffer=names.get(changed.buffer, changed.buffer))

    rewriting = Rewriting(change=change)
    sweeps = (replace(s, statements=tuple(map(rename, s.statements))) for s in kernel.sweeps)
    return replace(kernel, name=names.get(kernel.name, kernel.name), sweeps=tuple(sweeps))


@dataclass(slots=True)
class Numbers:
    """Numbers values so that two that compute the same have one number (for printers)."""

    _numbers: dict[object, int] = field(default_factory=dict[object, int])
    _known: dict[int, tuple[Value, int]] = field(default_factory=dict[int, tuple[Value, int]])

    def of(self, value: Value) -> int:
        """Return the number of a value."""
        known = self._known.get(id(value))
        if known is None:
            key = self._key(value)
            number = self._numbers.setdefault(key, len(self._numbers))
            self._known[id(value)] = known = (value, number)
        return known[1]

    def _key(self, value: Value) -> object:
        if isinstance(value, Const):
            return "const", value.dtype, repr(value.value)
        if isinstance(value, Load):
            return "load", value.buffer, self._index(value.index)
        if isinstance(value, Position):
            return "position", value.dtype, self._index(value.index)
        if isinstance(value, Local):
            return "local", value.name
        name = value.name if isinstance(value, Op) else "guarded"
        return name, value.dtype, tuple(map(self.of, operands(value)))

    def _index(self, index: Index) -> object:
        """Return a key in which equal gathers are equal."""
        if not indirect(index):
            return index
        sums = Counter[object]()
        for monomial, factor in index.terms:
            at = (self.of(indirect_value(atom)) for atom in monomial if isinstance(atom, Indirect))
            others = (atom for atom in monomial if not isinstance(atom, Indirect))
            sums[tuple(sorted(at)), tuple(others)] += factor
        return frozenset(sums.items())
