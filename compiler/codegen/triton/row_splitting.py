"""Few long rows become many short ones: a kernel with too few programs as several kernels.

    kernel s() of [sum]:                       kernel s.0(c < 1024):
      for r < 16777216:                          for q < 16384:
        total = sum(x[r])             ->           part = sum(x[c*16384 + q])
      s[0] = total                               s.total.parts[c] = part
                                               kernel s.1():
                                                 for c < 1024:
                                                   total = sum(s.total.parts[c])
                                                 s[0] = total

Each inner loop is cut into chunks, and the chunks are one more outer loop. The partial results of a
reduction are stored for each chunk, and combined by the next kernel, always in the same order: no
atomics, so that the bits depend on the sizes only. A sweep of stores only becomes a kernel without
inner loops, with its loops in the order of the memory that it writes. `argmax` looks up the
position within the winning chunk; `mean_m2` takes each chunk's mean first, and moves the squares to
the mean of all (Chan's formula). Kernels with scans stay whole.

Source: T. Chan, G. Golub, R. LeVeque, Updating formulae and a pairwise algorithm for computing
sample variances (1979).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.ir import (
    Buffer,
    Const,
    Dtype,
    Guarded,
    Kernel,
    Load,
    Local,
    Op,
    Position,
    Reduce,
    Scan,
    Statement,
    Store,
    Sweep,
    Value,
)
from ctk.compiler.lowering.layout import iteration, number_in
from ctk.compiler.lowering.vocabulary import neutral
from ctk.compiler.lowering.walk import Rewriting, walk
from ctk.compiler.sizes.index import (
    ONE,
    ZERO,
    Index,
    Indirect,
    Var,
    as_index,
    of_atom,
    product,
    smaller,
)


@dataclass(frozen=True, slots=True)
class Split:
    """A kernel as several."""

    kernels: tuple[Kernel, ...]
    buffers: Mapping[str, Buffer]


def can_split(kernel: Kernel) -> bool:
    """Return whether the inner loops of a kernel can be cut into chunks."""
    is_scan = any(isinstance(statement, Scan) for statement in kernel.statements)
    return not is_scan and not isinstance(kernel, Attention)


def split(kernel: Kernel, length: int) -> Split:
    """Return a kernel for which `can_split` holds with its inner loops cut into chunks."""
    cutting = _Cutting(kernel, length)
    for number, sweep in enumerate(kernel.sweeps):
        cutting.add(sweep, number)
    return cutting.result()


@dataclass(slots=True)
class _Chunks:
    """The inner loops of a sweep, cut.

    Attributes:
        outer: The loop over chunks; a number if there is one chunk.
        variables: The loops of the sweep as expressions of the new ones.
        start: The first iteration of a chunk, of all in row-major order.
        inside: Whether an iteration belongs to the sweep; None if all do.
    """

    outer: Var
    inner: tuple[Var, ...]
    variables: dict[Var, Index]
    start: Index
    count: Index
    number: Index
    inside: Value | None


@dataclass(slots=True)
class _Cutting:
    """A kernel on its way to several."""

    kernel: Kernel
    length: int
    kernels: list[Kernel] = field(default_factory=list[Kernel])
    buffers: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    _pending: list[Sweep] = field(default_factory=list[Sweep])
    _near: dict[str, Value] = field(default_factory=dict[str, Value])
    _far: dict[str, Load] = field(default_factory=dict[str, Load])
    _later: frozenset[str] = frozenset()

    def add(self, sweep: Sweep, number: int) -> None:
        """Add the kernels of a sweep."""
        if not sweep.inner:
            self._pending.append(Rewriting(change=self._nearby).sweep(sweep))
            return
        self._later = _locals_of(self.kernel.sweeps[number:])
        self._finish()
        if all(isinstance(statement, Store) for statement in sweep.statements):
            stores = Rewriting(change=self._remote).sweep(sweep).statements
            self._emit(_as_stored((*self.kernel.outer, *sweep.inner), stores), (Sweep((), stores),))
        else:
            self._cut(sweep, number)

    def result(self) -> Split:
        """Return the kernels."""
        self._later = frozenset()
        self._finish()
        return Split(tuple(self.kernels), self.buffers)

    def _cut(self, sweep: Sweep, number: int) -> None:
        chunks = self._chunks(sweep.inner, number)
        rewriting = Rewriting(chunks.variables, self._remote)
        first: list[Statement] = []
        sweeps: list[Sweep] = []
        parts: list[Statement] = []
        for statement in sweep.statements:
            changed = rewriting.statement(statement)
            if isinstance(changed, Store):
                guard = _both(chunks.inside, changed.guard)
                first.append(replace(changed, guard=guard))
            elif isinstance(changed, Reduce) and changed.kind == "mean_m2":
                sweeps += self._squares(changed, chunks, parts)
            elif isinstance(changed, Reduce):
                first.append(self._part(changed, chunks, parts))
        if first:
            sweeps.insert(0, Sweep(chunks.inner, tuple(first)))
        outer = (chunks.outer, *self.kernel.outer)
        self._emit(outer, (*sweeps, Sweep((), tuple(parts))))

    def _part(self, reduce: Reduce, chunks: _Chunks, parts: list[Statement]) -> Reduce:
        """Return a reduction of one chunk; its results are stored, and combined later."""
        dtype = reduce.value.dtype
        value = _filled(reduce.value, chunks.inside, Const(neutral(reduce.kind, dtype), dtype))
        names = tuple(f"{name}.part" for name in reduce.names)
        loop, c = self._over(chunks)
        for n, (name, dtype) in enumerate(zip(names, reduce.dtypes, strict=True)):
            result: Value = Local(name, dtype)
            if n == 1:  # the place: of all iterations, not of those of the chunk
                result = Op("add", (result, Position(chunks.start)), dtype, reduce.origin)
            parts.append(self._keep(name, dtype, chunks, result, reduce.origin))
        at = self._at(c)
        load = Load(self._name(names[0]), at, reduce.dtypes[0])
        combined = replace(reduce, value=load)
        self._pending.append(Sweep((loop,), (combined,)))
        if len(names) == 2:
            winner = Local(reduce.names[1], torch.int64)
            where = self._at(of_atom(Indirect(winner, chunks.number)))
            self._near[reduce.names[1]] = Load(self._name(names[1]), where, reduce.dtypes[1])
        return replace(reduce, names=names, value=value)

    def _squares(self, reduce: Reduce, chunks: _Chunks, parts: list[Statement]) -> list[Sweep]:
        dtype, origin = reduce.dtypes[0], reduce.origin
        total, squares = (f"{name}.part" for name in reduce.names)

        zero = Const(0.0, dtype)
        count = _op(reduce, "cast", Position(chunks.count))
        mean = _op(reduce, "div", Local(total, dtype), count)
        apart = _op(reduce, "sub", reduce.value, mean)
        sums = Reduce((total,), "sum", _filled(reduce.value, chunks.inside, zero), (dtype,), origin)
        squared = _filled(_op(reduce, "mul", apart, apart), chunks.inside, zero)
        m2 = Reduce((squares,), "sum", squared, (dtype,), origin)
        sweeps = [Sweep(chunks.inner, (each,)) for each in (sums, m2)]
        parts.append(self._keep(total, dtype, chunks, mean, origin))
        parts.append(self._keep(squares, dtype, chunks, Local(squares, dtype), origin))
        self._join_squares(reduce, chunks, total, squares)
        return sweeps

    def _join_squares(self, reduce: Reduce, chunks: _Chunks, total: str, squares: str) -> None:
        dtype, origin = reduce.dtypes[0], reduce.origin
        loop, c = self._over(chunks)

        again = Rewriting({chunks.outer: c})
        count = _op(reduce, "cast", Position(again.index(chunks.count)))
        mean = Load(self._name(total), self._at(c), dtype)
        m2 = Load(self._name(squares), self._at(c), dtype)
        every = _op(reduce, "cast", Position(product([size.size for size in chunks.variables])))
        sums = Reduce((reduce.names[0],), "sum", _op(reduce, "mul", mean, count), (dtype,), origin)
        whole = _op(reduce, "div", Local(reduce.names[0], dtype), every)
        apart = _op(reduce, "sub", mean, whole)
        moved = _op(reduce, "add", m2, _op(reduce, "mul", count, _op(reduce, "mul", apart, apart)))
        self._pending.append(Sweep((loop,), (sums,)))
        second = Reduce((reduce.names[1],), "sum", moved, (dtype,), origin)
        self._pending.append(Sweep((loop,), (second,)))
        self._near[reduce.names[0]] = whole

    def _finish(self) -> None:
        if not self._pending:
            return
        stores: list[Statement] = []
        for name, dtype in self._results():
            if name in self._later:
                near = self._near.get(name, Local(name, dtype))
                buffer = self._buffer(f"{name}.all", dtype, self._rows())
                at = self._row()
                stores.append(Store(buffer.name, at, near))
                self._far[name] = Load(buffer.name, at, dtype)
        sweeps = (*self._pending, *([Sweep((), tuple(stores))] if stores else []))
        self._pending = []
        self._emit(self.kernel.outer, sweeps)

    def _results(self) -> list[tuple[str, Dtype]]:
        pending = [statement for sweep in self._pending for statement in sweep.statements]
        reduces = [each for each in pending if isinstance(each, Reduce)]
        return [
            pair for reduce in reduces for pair in zip(reduce.names, reduce.dtypes, strict=True)
        ]

    def _chunks(self, nest: tuple[Var, ...], number: int) -> _Chunks:
        first, *rest = nest
        inside_rest = product([loop.size for loop in rest])
        per = inside_rest.number
        if per is not None and 0 < per <= self.length // 2:  # cut the outermost loop only
            length, size, step = as_index(self.length // per), first.size, inside_rest
        else:
            length, size, step = as_index(self.length), inside_rest * first.size, ONE
        cut = Var(f"q{number}", length)
        chunk = Var(f"c{number}", (size + length - 1) // length)
        c = of_atom(chunk)
        place = c * length + of_atom(cut)
        if step == ONE:
            variables, inner = iteration(place, nest), (cut,)
        else:
            variables = {first: place, **{loop: of_atom(loop) for loop in rest}}
            inner = (cut, *rest)
        left = smaller(length, size - c * length) if size % length != ZERO else length
        inside = None
        if size % length != ZERO:
            inside = Op("lt", (Position(place), Position(size)), torch.bool)
        start = c * length * step
        return _Chunks(chunk, inner, variables, start, left * step, chunk.size, inside)

    def _over(self, chunks: _Chunks) -> tuple[Var, Index]:
        loop = Var(f"r{chunks.outer.name}", chunks.outer.size)
        return loop, of_atom(loop)

    def _keep(self, name: str, dtype: Dtype, chunks: _Chunks, value: Value, origin: str) -> Store:
        buffer = self._buffer(name, dtype, chunks.number * self._rows())
        return Store(buffer.name, self._at(of_atom(chunks.outer)), value, origin=origin)

    def _at(self, chunk: Index) -> Index:
        return chunk * self._rows() + self._row()

    def _row(self) -> Index:
        return number_in(self.kernel.outer)

    def _rows(self) -> Index:
        return product([loop.size for loop in self.kernel.outer])

    def _name(self, name: str) -> str:
        return f"{self.kernel.name}:{name}"

    def _buffer(self, name: str, dtype: Dtype, count: Index) -> Buffer:
        full = self._name(name)
        buffer = Buffer(full, dtype, (count,), (ONE,), self.kernel.device, "kernel")
        self.buffers[full] = buffer
        return buffer

    def _emit(self, outer: Sequence[Var], sweeps: Sequence[Sweep]) -> None:
        name = f"{self.kernel.name}.{len(self.kernels)}"
        loops = tuple(loop for loop in outer if loop.size != ONE)
        self.kernels.append(replace(self.kernel, name=name, outer=loops, sweeps=tuple(sweeps)))

    def _nearby(self, value: Value) -> Value | None:
        if not isinstance(value, Local):
            return None
        return self._far.get(value.name) or self._near.get(value.name)

    def _remote(self, value: Value) -> Value | None:
        return self._far.get(value.name) if isinstance(value, Local) else None


def _as_stored(loops: Sequence[Var], stores: Iterable[Statement]) -> list[Var]:
    """Return loops in the order of the memory that the first store writes, if that is known."""
    store = next(each for each in stores if isinstance(each, Store))
    factors = {loop: store.index.factor_of(loop) for loop in loops}
    strides = {loop: 0 if by is None else by.number or 0 for loop, by in factors.items()}
    return sorted(loops, key=lambda loop: -strides[loop]) if all(strides.values()) else [*loops]


def _op(reduce: Reduce, name: str, *args: Value) -> Value:
    return Op(name, args, reduce.dtypes[0], reduce.origin)


def _locals_of(sweeps: Sequence[Sweep]) -> frozenset[str]:
    values = (v for sweep in sweeps for statement in sweep.statements for v in walk(statement))
    return frozenset(value.name for value in values if isinstance(value, Local))


def _filled(value: Value, inside: Value | None, other: Const) -> Value:
    return value if inside is None else Guarded(inside, value, other)


def _both(one: Value | None, two: Value | None) -> Value | None:
    if one is None or two is None:
        return one if two is None else two
    return Op("and", (one, two), torch.bool)
