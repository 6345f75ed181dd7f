"""Print a sweep that reduces: its accumulators, the loops, the combination of blocks and chunks.

    double total = 0;                                   // over blocks
    for (int64_t r0_from = 0; ...; r0_from += 4096) {
        float total_part = 0;                           // within a block: a SIMD loop
        ...
        total += total_part;
    }

A reduction that has not enough rows for the threads is cut into chunks, as many as its size asks
for and never as many as there are threads: so the result is the same on every number of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from ctk.compiler.codegen.c.accumulators import (
    BLOCK,
    ROWS,
    arg_update,
    clause,
    combine_squares,
    identity,
    is_arg,
    is_blocked,
    update,
    wide_type,
)
from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.types import C_TYPES, grouped
from ctk.compiler.codegen.c.values import Block, with_origins
from ctk.compiler.lowering.ir import Dtype, Reduce, Store, Sweep
from ctk.compiler.lowering.layout import number_in
from ctk.compiler.sizes.index import Var


class ReducePrinter:
    """One sweep that reduces, on its way to C."""

    def __init__(self, printer: SweepPrinter, sweep: Sweep, chunks: int) -> None:
        self.printer = printer
        self.values = printer.values
        self.sweep = sweep
        self.chunks = chunks
        self.reduces = [each for each in sweep.statements if isinstance(each, Reduce)]
        self.last = sweep.inner[-1]
        self.step = BLOCK if printer.tile is None else ROWS
        size = self.last.size.number
        short = size is not None and size <= self.step
        self.in_blocks = not short and any(map(is_blocked, self.reduces))
        self.single = len(sweep.inner) == 1 and not self.in_blocks and chunks == 1
        """The whole reduction is one loop, and no accumulators are combined."""
        self.totals: dict[str, str] = {}
        self.counts: dict[str, str] = {}
        self.arrays: dict[str, str] = {}

    def print(self) -> None:
        """Print the sweep, and say what later sweeps read."""
        self.values.count(self.sweep.statements)
        if self.chunks > 1 and not self.reduces:
            self._stores(self.sweep.inner)
        elif self.chunks > 1:
            self._in_chunks()
        else:
            self._declare_all()
            self._loops(list(self.sweep.inner), "0", "")
        for reduce in self.reduces:
            for position, (name, dtype) in enumerate(zip(reduce.names, reduce.dtypes, strict=True)):
                self._bind(reduce, name, dtype, is_place=is_arg(reduce) and position == 1)

    def _stores(self, loops: tuple[Var, ...]) -> None:
        """Print a sweep that only stores, its iterations shared among threads."""
        first, *rest = loops
        words = ["parallel for"] if loops == self.sweep.inner else []
        words += ["simd"] if not rest and self.printer.tile is None else []
        words = words if self.printer.is_apart(first) else []
        pragma = " ".join(("#pragma omp", *words)) if words else ""
        with self.printer.loop(first, pragma=pragma):
            if rest:
                self._stores(tuple(rest))
                return
            with self.printer.lanes():
                for statement in self.sweep.statements:
                    assert isinstance(statement, Store)
                    self.printer.store(statement)

    def _bind(self, reduce: Reduce, name: str, dtype: Dtype, *, is_place: bool) -> None:
        total = self.totals[name]
        if is_place:
            place = self.printer.variable(total)
            self.printer.bind(name, f"({place} < 0 ? 0 : {place})", self.values.block)
            return
        if self.single or wide_type(reduce) == C_TYPES[dtype]:
            self.printer.bind(name, self.printer.variable(total), self.values.block)
            return
        code = f"(({C_TYPES[dtype]}){self.printer.variable(total)})"
        if self.printer.tile is None:
            result = self.values.names.new(f"{total}_all")
            self.values.block.lines.append(f"const {C_TYPES[dtype]} {result} = {code[1:-1]};")
            code = result
        self.printer.bind(name, code, self.values.block)

    def _declare_all(self) -> None:
        for reduce in self.reduces:
            self.values.block.lines.append(f"// {reduce.origin}")
            for position, name in enumerate(reduce.names):
                self.totals.setdefault(name, self.values.names.new(name))
                ctype, begin = self._begin(reduce, position)
                self.printer.declare(ctype, self.totals[name], begin)
            if reduce.kind == "mean_m2" and not self.single:
                first = reduce.names[0]
                self.counts.setdefault(first, self.values.names.new("count"))
                self.values.block.lines.append(f"int64_t {self.counts[first]} = 0;")

    def _begin(self, reduce: Reduce, position: int) -> tuple[str, str]:
        """Return the type of an accumulator, and what it begins with."""
        if is_arg(reduce) and position == 1:
            return "int64_t", "-1"
        ctype = C_TYPES[reduce.value.dtype] if self.single else wide_type(reduce)
        return ctype, identity(reduce.kind, reduce.value.dtype)

    def _in_chunks(self) -> None:
        """Print the chunks, which run on threads, and what combines them in their order."""
        values, printer, tile = self.values, self.printer, self.printer.tile
        width = "" if tile is None else f"[{tile.width}]"
        for reduce in self.reduces:
            for position, name in enumerate(reduce.names):
                self.arrays[name] = array = values.names.new(f"{name}_chunks")
                ctype = self._begin(reduce, position)[0]
                values.block.lines.append(f"{ctype} {array}[{self.chunks}]{width};")
            if reduce.kind == "mean_m2":
                first = reduce.names[0]
                self.arrays[f"{first}#"] = array = values.names.new(f"{first}_counts")
                values.block.lines.append(f"int64_t {array}[{self.chunks}];")
        chunk = values.names.new("chunk")
        head = f"for (int64_t {chunk} = 0; {chunk} < {self.chunks}; ++{chunk}) {{"
        size = values.index(self.sweep.inner[0].size)
        apart = printer.is_apart(self.sweep.inner[0])
        pragma = "#pragma omp parallel for" if apart else ""
        with printer.block(head, is_loop=True, pragma=pragma) as inner:
            start, stop = values.names.new("begin"), values.names.new("end")
            inner.lines += [
                f"const int64_t {start} = {chunk} * ({size}) / {self.chunks};",
                f"const int64_t {stop} = ({chunk} + 1) * ({size}) / {self.chunks};",
            ]
            self._declare_all()
            self._loops(list(self.sweep.inner), start, stop)
            with printer.lanes():
                for name, array in self.arrays.items():
                    if not name.endswith("#"):
                        target = printer.variable(f"{array}[{chunk}]")
                        values.block.lines.append(f"{target} = {self._total(name)};")
            for name, count in self.counts.items():
                inner.lines.append(f"{self.arrays[f'{name}#']}[{chunk}] = {count};")
        self._declare_all()
        with printer.block(head, is_loop=True):
            with printer.lanes():
                for reduce in self.reduces:
                    parts = [printer.variable(f"{self.arrays[n]}[{chunk}]") for n in reduce.names]
                    counts = self.arrays.get(f"{reduce.names[0]}#", "")
                    self._combine(reduce, parts, f"{counts}[{chunk}]")
            self._count({name: f"{self.arrays[f'{name}#']}[{chunk}]" for name in self.counts})

    def _total(self, name: str) -> str:
        return self.printer.variable(self.totals[name])

    def _combine(self, reduce: Reduce, parts: list[str], count: str) -> None:
        """Print what combines the accumulators with those of a chunk or a block."""
        lines = self.values.block.lines
        totals = [self._total(name) for name in reduce.names]
        if reduce.kind == "mean_m2":
            seen = self.counts[reduce.names[0]]
            both = (totals[0], totals[1], seen), (parts[0], parts[1], count)
            with self.printer.block(f"if ({count} > 0) {{") as inner:
                inner.lines += combine_squares(reduce, *both)
        elif is_arg(reduce):
            lines += arg_update(reduce, (totals[0], totals[1]), (parts[0], parts[1]))
        else:
            lines.append(update(reduce.kind, reduce.value.dtype, totals[0], parts[0]))

    def _count(self, counts: Mapping[str, str]) -> None:
        for name, count in counts.items():
            self.values.block.lines.append(f"{self.counts[name]} += {count};")

    def _loops(self, loops: list[Var], start: str, stop: str) -> None:
        """Print the loops from the outermost on, which goes from `start` to `stop`."""
        first, *rest = loops
        end = stop or self.values.index(first.size)
        if rest:
            with self.printer.loop(first, start=start, stop=end):
                self._loops(rest, "0", "")
            return
        if not self.in_blocks:
            self._leaf(start, end)
            return
        name = self.values.names.of(first.name)
        if start == "0":
            with self.printer.pieces(name, end, self.step) as (low, high):
                self._leaf(low, high)
            return
        low, high = self.values.names.new(f"{name}_from"), self.values.names.new(f"{name}_to")
        head = f"for (int64_t {low} = {start}; {low} < {end}; {low} += {self.step}) {{"
        with self.printer.block(head, is_loop=True) as inner:
            inner.lines.append(
                f"const int64_t {high} = {low} + {self.step} < {end} ? {low} + {self.step} : {end};"
            )
            self._leaf(low, high)

    def _leaf(self, start: str, stop: str) -> None:
        """Print the innermost loop, and what adds its accumulators to those around it."""
        values, printer = self.values, self.printer
        parts: dict[str, str] = {}
        for reduce in self.reduces:
            name, dtype = reduce.names[0], reduce.value.dtype
            if not self._has_part(reduce):
                parts[name] = self.totals[name]
                continue
            parts[name] = values.names.new(f"{self.totals[name]}_part")
            printer.declare(C_TYPES[dtype], parts[name], identity(reduce.kind, dtype))
        with self._innermost(start, stop, parts):
            for statement in self.sweep.statements:
                if isinstance(statement, Reduce):
                    self._update(statement, printer.variable(parts[statement.names[0]]))
                elif isinstance(statement, Store):
                    printer.store(statement)
        for reduce in self.reduces:
            self._finish_leaf(reduce, parts[reduce.names[0]], start, stop)

    def _has_part(self, reduce: Reduce) -> bool:
        """Return whether the innermost loop has an accumulator of its own."""
        if is_arg(reduce):
            return self.printer.tile is None
        return is_blocked(reduce) and not self.single

    @contextmanager
    def _innermost(self, start: str, stop: str, parts: dict[str, str]) -> Generator[None]:
        """Print the innermost loop: over SIMD lanes itself, or around the columns of a tile."""
        if self.printer.tile is not None:
            with self.printer.loop(self.last, start=start, stop=stop), self.printer.lanes():
                yield
            return
        clauses = [clause(reduce, parts[reduce.names[0]]) for reduce in self.reduces]
        pragma = " ".join(("#pragma omp simd", *clauses))
        pragma = pragma if self.printer.is_apart(self.last) else ""
        with self.printer.row(self.last, self.sweep.statements, start, stop, pragma):
            yield

    def _update(self, reduce: Reduce, part: str) -> None:
        values = self.values
        values.faults.node = reduce.origin
        dtype = reduce.value.dtype
        if is_arg(reduce) and self.printer.tile is not None:
            value, at = values.named(reduce.value), values.index(number_in(self.sweep.inner))
            place = self._total(reduce.names[1])
            values.block.lines += arg_update(reduce, (part, place), (value, at))
            return
        code = values.code(reduce.value)
        line = update(reduce.kind, dtype, part, code.text)
        values.block.lines.append(with_origins(line, code.origins))

    def _finish_leaf(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        if reduce.kind == "mean_m2":
            self._squares(reduce, part, start, stop)
        elif is_arg(reduce) and self.printer.tile is None:
            self._search(reduce, part, start, stop)
        elif part != self.totals[reduce.names[0]]:
            with self.printer.lanes():
                total = self._total(reduce.names[0])
                self.values.block.lines.append(f"{total} += {self.printer.variable(part)};")

    def _squares(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        """Print what follows a block's sum: its mean, the squares around it, the combination."""
        values, printer = self.values, self.printer
        ctype = C_TYPES[reduce.value.dtype]
        count = stop if start == "0" else f"({stop} - {start})"
        middle, squares = (self.totals[name] for name in reduce.names)
        if not self.single:
            middle, squares = part, values.names.new(f"{squares}_part")
            printer.declare(ctype, squares, "0")
        with printer.lanes():
            mean = f"{printer.variable(part)} / ({ctype}){count}"
            values.block.lines.append(f"{printer.variable(middle)} = {mean};")
        with self._second_pass(reduce, start, stop, squares) as inner:
            value = grouped(values.text(reduce.value))
            inner.lines.append(f"const {ctype} away = {value} - {printer.variable(middle)};")
            inner.lines.append(f"{printer.variable(squares)} += away * away;")
        if self.single:
            return
        with printer.lanes():
            self._combine(reduce, [printer.variable(part), printer.variable(squares)], count)
        self._count({reduce.names[0]: count})

    @contextmanager
    def _second_pass(self, reduce: Reduce, start: str, stop: str, squares: str) -> Generator[Block]:
        if self.printer.tile is not None:
            with self.printer.loop(self.last, start=start, stop=stop), self.printer.lanes():
                yield self.values.block
            return
        pragma = f"#pragma omp simd reduction(+ : {squares})"
        with self.printer.row(self.last, (reduce,), start, stop, pragma) as inner:
            yield inner

    def _search(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        """Print what follows a block's extreme: if it is a new one, its first place."""
        values = self.values
        place = values.names.new("place")
        best = self.totals[reduce.names[0]], self.totals[reduce.names[1]]
        lines = arg_update(reduce, best, (part, place))
        same = "{0} == {1}"
        if reduce.value.dtype.is_floating_point:
            same = "({0} == {1} || {0} != {0})"
        with self.printer.block(lines[0]) as found:
            found.lines.append(f"int64_t {place} = -1;")
            with self.printer.loop(self.last, start=start, stop=f"{stop} && {place} < 0") as inner:
                value = values.named(reduce.value)
                at = values.index(number_in(self.sweep.inner))
                inner.lines.append(f"if ({same.format(value, part)}) {place} = {at};")
            found.lines += [line.strip() for line in lines[1:-1]]
