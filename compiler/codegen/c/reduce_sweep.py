"""Print a sweep that reduces: its accumulators, the loops, the combination of blocks and chunks.

    double total = 0;                                   // over blocks
    for (int64_t r0_from = 0; ...; r0_from += 4096) {
        float total_part = 0;                           // within a block: a SIMD loop
        ...
        total += total_part;
    }

A reduction with fewer rows than threads is cut into chunks. Their number depends on the size of the
reduction alone, so that the result is the same on every number of threads.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

from ctk.compiler.codegen.c.accumulators import (
    BLOCK,
    ROWS,
    SEARCHED,
    arg_update,
    clause,
    combine_squares,
    identity,
    is_arg,
    is_blocked,
    is_float_extreme,
    ordered_update,
    update,
    wide_type,
)
from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.types import C_TYPES, grouped, memory_type
from ctk.compiler.codegen.c.values import Block, with_origins
from ctk.compiler.lowering.ir import Reduce, Statement, Store, Sweep
from ctk.compiler.lowering.layout import number_in
from ctk.compiler.sizes.index import Var


class ReducePrinter:
    """Prints one sweep that reduces; a `single` one combines no accumulators."""

    def __init__(self, printer: SweepPrinter, sweep: Sweep, chunks: int) -> None:
        self.printer = printer
        self.values = printer.values
        self.sweep = sweep
        self.chunks = chunks
        self.reduces = [
            statement for statement in sweep.statements if isinstance(statement, Reduce)
        ]
        self.last = sweep.inner[-1]
        self.step = BLOCK if printer.tile is None else ROWS
        size = self.last.size.number
        short = size is not None and size <= self.step
        self.in_blocks = not short and any(map(is_blocked, self.reduces))
        self.single = len(sweep.inner) == 1 and not self.in_blocks and chunks == 1
        self.totals = _Totals(printer, self.reduces, single=self.single)

    def print(self) -> None:
        """Print the sweep, and bind its results for later sweeps."""
        self.values.count(self.sweep.statements)
        if self.chunks > 1 and not self.reduces:
            self._stores(self.sweep.inner)
        elif self.chunks > 1:
            self._in_chunks()
        else:
            self.totals.declare()
            self._loops(list(self.sweep.inner), "0", "")
        self.totals.bind()

    def _stores(self, loops: tuple[Var, ...]) -> None:
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

    def _in_chunks(self) -> None:
        arrays, counts = self._declare_chunks()
        values, printer, totals = self.values, self.printer, self.totals
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
            totals.declare()
            self._loops(list(self.sweep.inner), start, stop)
            with printer.lanes():
                for name, array in arrays.items():
                    target = printer.variable(f"{array}[{chunk}]")
                    values.block.lines.append(f"{target} = {totals.variable(name)};")
            for name, count in totals.counts.items():
                inner.lines.append(f"{counts[name]}[{chunk}] = {count};")
        totals.declare()
        with printer.block(head, is_loop=True):
            with printer.lanes():
                for reduce in self.reduces:
                    parts = [printer.variable(f"{arrays[name]}[{chunk}]") for name in reduce.names]
                    totals.combine(reduce, parts, f"{counts.get(reduce.names[0], '')}[{chunk}]")
            totals.add_counts({name: f"{counts[name]}[{chunk}]" for name in totals.counts})

    def _declare_chunks(self) -> tuple[dict[str, str], dict[str, str]]:
        values, tile = self.values, self.printer.tile
        width = "" if tile is None else f"[{tile.width}]"
        arrays: dict[str, str] = {}
        counts: dict[str, str] = {}
        for reduce in self.reduces:
            for position, name in enumerate(reduce.names):
                arrays[name] = array = values.names.new(f"{name}_chunks")
                ctype = self.totals.type_of(reduce, position)
                values.block.lines.append(f"{ctype} {array}[{self.chunks}]{width};")
            if reduce.kind == "mean_m2":
                first = reduce.names[0]
                counts[first] = array = values.names.new(f"{first}_counts")
                values.block.lines.append(f"int64_t {array}[{self.chunks}];")
        return arrays, counts

    def _loops(self, loops: list[Var], start: str, stop: str) -> None:
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
        with self.printer.pieces(name, end, self.step, begin=start) as (low, high):
            self._leaf(low, high)

    def _leaf(self, start: str, stop: str) -> None:
        """Print the innermost loop, and the addition of its accumulators to those around it."""
        values, printer = self.values, self.printer
        parts: dict[str, str] = {}
        for reduce in self.reduces:
            name, dtype = reduce.names[0], reduce.value.dtype
            if not self._has_part(reduce):
                parts[name] = self.totals.names[name]
                continue
            parts[name] = values.names.new(f"{self.totals.names[name]}_part")
            printer.declare(C_TYPES[dtype], parts[name], identity(reduce.kind, dtype))
        odd = self._declare_flags()
        clauses = [clause(reduce, parts[reduce.names[0]]) for reduce in self.reduces]
        clauses += [f"reduction(| : {flag})" for flag in odd.values()]
        pragma = " ".join(("#pragma omp simd", *clauses)) if printer.is_apart(self.last) else ""
        with self._innermost(self.sweep.statements, start, stop, pragma):
            for statement in self.sweep.statements:
                if isinstance(statement, Reduce) and statement.names[0] in odd:
                    name = statement.names[0]
                    self._update_ordered(statement, parts[name], odd[name])
                elif isinstance(statement, Reduce):
                    self._update(statement, printer.variable(parts[statement.names[0]]))
                elif isinstance(statement, Store):
                    printer.store(statement)
        for name, flag in odd.items():
            values.block.lines.append(f"if ({flag}) {parts[name]} = NAN;")
        for reduce in self.reduces:
            self._finish_leaf(reduce, parts[reduce.names[0]], start, stop)

    def _declare_flags(self) -> dict[str, str]:
        """Print a flag for each extreme of floats in SIMD lanes: whether it has met a NaN."""
        if self.printer.tile is not None:
            return {}
        names = [reduce.names[0] for reduce in self.reduces if is_float_extreme(reduce)]
        flags = {name: self.values.names.new("odd") for name in names}
        self.values.block.lines += [f"int {flag} = 0;" for flag in flags.values()]
        return flags

    def _has_part(self, reduce: Reduce) -> bool:
        if is_arg(reduce):
            return self.printer.tile is None
        if is_float_extreme(reduce):
            return self.printer.tile is None and not self.single
        return is_blocked(reduce) and not self.single

    @contextmanager
    def _innermost(
        self, statements: Sequence[Statement], start: str, stop: str, pragma: str
    ) -> Generator[Block]:
        """Print the innermost loop: over SIMD lanes itself, or around the columns of a tile."""
        if self.printer.tile is not None:
            with (
                self.printer.loop(self.last, start=start, stop=stop),
                self.printer.lanes(statements),
            ):
                yield self.values.block
            return
        with self.printer.row(self.last, statements, start, stop, pragma) as inner:
            yield inner

    def _update(self, reduce: Reduce, part: str) -> None:
        values = self.values
        values.faults.node = reduce.origin
        dtype = reduce.value.dtype
        if is_arg(reduce) and self.printer.tile is not None:
            value, at = values.named(reduce.value), values.index(number_in(self.sweep.inner))
            place = self.totals.variable(reduce.names[1])
            values.block.lines += arg_update(reduce, (part, place), (value, at))
            return
        code = values.code(reduce.value)
        line = update(reduce.kind, dtype, part, code.text)
        values.block.lines.append(with_origins(line, code.origins))

    def _update_ordered(self, reduce: Reduce, part: str, flag: str) -> None:
        """Print the update of an extreme of floats, apart from the question of a NaN."""
        values = self.values
        values.faults.node = reduce.origin
        value = values.named(reduce.value)
        values.block.lines.append(ordered_update(reduce, part, value))
        values.block.lines.append(f"{flag} |= {value} != {value};")

    def _finish_leaf(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        if reduce.kind == "mean_m2":
            self._squares(reduce, part, start, stop)
        elif is_arg(reduce) and self.printer.tile is None:
            self._search(reduce, part, start, stop)
        elif part != self.totals.names[reduce.names[0]]:
            with self.printer.lanes():
                total = self.totals.variable(reduce.names[0])
                part = self.printer.variable(part)
                line = update(reduce.kind, reduce.value.dtype, total, part)
                self.values.block.lines.append(line)

    def _squares(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        """Print the second pass of a block after its sum: its mean, the squares around it."""
        values, printer = self.values, self.printer
        ctype = C_TYPES[reduce.value.dtype]
        count = stop if start == "0" else f"({stop} - {start})"
        middle, squares = (self.totals.names[name] for name in reduce.names)
        if not self.single:
            middle, squares = part, values.names.new(f"{squares}_part")
            printer.declare(ctype, squares, "0")
        with printer.lanes():
            mean = f"{printer.variable(part)} / ({ctype}){count}"
            values.block.lines.append(f"{printer.variable(middle)} = {mean};")
        pragma = f"#pragma omp simd reduction(+ : {squares})"
        with self._innermost((reduce,), start, stop, pragma) as inner:
            value = grouped(values.text(reduce.value))
            inner.lines.append(f"const {ctype} away = {value} - {printer.variable(middle)};")
            inner.lines.append(f"{printer.variable(squares)} += away * away;")
        if self.single:
            return
        with printer.lanes():
            self.totals.combine(reduce, [printer.variable(part), printer.variable(squares)], count)
        self.totals.add_counts({reduce.names[0]: count})

    def _search(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        """Print the search for the first position of a block's extreme, if it is a new one."""
        values = self.values
        place = values.names.new("place")
        best = self.totals.names[reduce.names[0]], self.totals.names[reduce.names[1]]
        lines = arg_update(reduce, best, (part, place))
        with self.printer.block(lines[0]) as found:
            found.lines.append(f"int64_t {place} = -1;")
            name = values.names.of(self.last.name)
            with self.printer.pieces(name, stop, SEARCHED, begin=start) as (low, high):
                self._search_piece(reduce, (low, high), part, place)
            found.lines += [line.strip() for line in lines[1:-1]]

    def _search_piece(self, reduce: Reduce, bounds: tuple[str, str], part: str, place: str) -> None:
        """Print the search in some neighbours: whether one is the extreme, and if so which."""
        values, printer, (low, high) = self.values, self.printer, bounds
        met = values.names.new("met")
        same = "{0} == {1}"
        if reduce.value.dtype.is_floating_point:
            same = "({0} == {1} || {0} != {0})"
        values.block.lines += [f"if ({place} >= 0) break;", f"int {met} = 0;"]
        pragma = f"#pragma omp simd reduction(| : {met})"
        with printer.loop(self.last, start=low, stop=high, pragma=pragma) as inner:
            value = values.named(reduce.value)
            inner.lines.append(f"{met} |= {same.format(value, part)};")
        with (
            printer.block(f"if ({met}) {{"),
            printer.loop(self.last, start=low, stop=f"{high} && {place} < 0") as inner,
        ):
            value = values.named(reduce.value)
            at = values.index(number_in(self.sweep.inner))
            inner.lines.append(f"if ({same.format(value, part)}) {place} = {at};")


class _Totals:
    """The accumulators as variables of C: how they begin, are added, and are read later.

    `mean_m2` has a mean, a sum of squares and, where blocks or chunks are combined, a count.
    """

    def __init__(self, printer: SweepPrinter, reduces: Sequence[Reduce], *, single: bool) -> None:
        self.names: dict[str, str] = {}
        self.counts: dict[str, str] = {}
        self._printer = printer
        self._values = printer.values
        self._reduces = reduces
        self._single = single

    def variable(self, name: str) -> str:
        """Return the accumulator of a result, in the current column."""
        return self._printer.variable(self.names[name])

    def declare(self) -> None:
        """Print the declarations."""
        lines, names = self._values.block.lines, self._values.names
        for reduce in self._reduces:
            lines.append(f"// {reduce.origin}")
            for position, name in enumerate(reduce.names):
                self.names.setdefault(name, names.new(name))
                begin = identity(reduce.kind, reduce.value.dtype)
                if is_arg(reduce) and position == 1:
                    begin = "0"
                self._printer.declare(self.type_of(reduce, position), self.names[name], begin)
            if reduce.kind == "mean_m2" and not self._single:
                first = reduce.names[0]
                self.counts.setdefault(first, names.new("count"))
                lines.append(f"int64_t {self.counts[first]} = 0;")

    def type_of(self, reduce: Reduce, position: int) -> str:
        """Return the C type of an accumulator."""
        if is_arg(reduce) and position == 1:
            return "int64_t"
        return memory_type(reduce.value.dtype) if self._single else wide_type(reduce)

    def combine(self, reduce: Reduce, parts: list[str], count: str) -> None:
        """Print the combination of the accumulators with those of a chunk or a block."""
        lines = self._values.block.lines
        totals = [self.variable(name) for name in reduce.names]
        if reduce.kind == "mean_m2":
            seen = self.counts[reduce.names[0]]
            both = (totals[0], totals[1], seen), (parts[0], parts[1], count)
            with self._printer.block(f"if ({count} > 0) {{") as inner:
                inner.lines += combine_squares(reduce, *both)
        elif is_arg(reduce):
            lines += arg_update(reduce, (totals[0], totals[1]), (parts[0], parts[1]))
        else:
            lines.append(update(reduce.kind, reduce.value.dtype, totals[0], parts[0]))

    def add_counts(self, counts: Mapping[str, str]) -> None:
        """Print the additions to the counts, by first result."""
        for name, count in counts.items():
            self._values.block.lines.append(f"{self.counts[name]} += {count};")

    def bind(self) -> None:
        """Bind the results, so that later sweeps read the accumulators."""
        for reduce in self._reduces:
            for position, name in enumerate(reduce.names):
                self._printer.bind(name, self._result(reduce, position, name))

    def _result(self, reduce: Reduce, position: int, name: str) -> str:
        total, dtype = self.variable(name), reduce.dtypes[position]
        if self._single or wide_type(reduce) == C_TYPES[dtype] or (is_arg(reduce) and position):
            return total
        code = f"({C_TYPES[dtype]}){total}"
        if self._printer.tile is not None:
            return f"({code})"
        result = self._values.names.new(f"{self.names[name]}_all")
        self._values.block.lines.append(f"const {C_TYPES[dtype]} {result} = {code};")
        return result
