"""Print the sweeps of a kernel: loops around statements, reductions with their accumulators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ctk.compiler.codegen.c.operations import cast_code
from ctk.compiler.codegen.c.reductions import (
    BLOCK,
    clause,
    identity,
    is_blocked,
    update,
    wide_type,
)
from ctk.compiler.codegen.c.types import C_TYPES, SUFFIXES, is_narrow
from ctk.compiler.codegen.c.values import Block, Values
from ctk.compiler.lowering.index import ONE, Index, Var, of_atom
from ctk.compiler.lowering.ir import Dtype, Reduce, Scan, Store, Sweep


class SweepPrinter:
    """Prints sweeps into the block that is open."""

    def __init__(self, values: Values) -> None:
        self.values = values

    @contextmanager
    def block(self, head: str, *, is_loop: bool = False, pragma: str = "") -> Iterator[Block]:
        """Print a block with what is printed meanwhile in it."""
        outer = self.values.block
        inner = Block(outer, is_loop=is_loop)
        self.values.block = inner
        yield inner
        self.values.block = outer
        outer.lines += [pragma] if pragma else []
        outer.lines += [head, *(f"    {line}" for line in inner.lines), "}"]

    @contextmanager
    def loop(
        self, var: Var, *, start: str = "0", stop: str = "", pragma: str = ""
    ) -> Iterator[Block]:
        """Print a loop over a variable, from 0 to its size if nothing else is said."""
        name = self.values.names.of(var.name)
        end = stop or self.values.index(var.size)
        head = f"for (int64_t {name} = {start}; {name} < {end}; ++{name}) {{"
        with self.block(head, is_loop=True, pragma=pragma) as inner:
            inner.places[var] = name
            yield inner

    def print(self, sweep: Sweep) -> None:
        """Print a sweep."""
        self.values.count(sweep.statements)
        if not sweep.inner:
            self._statements(sweep)
            return
        if any(isinstance(each, Scan) for each in sweep.statements):
            self._scan(sweep)
            return
        _Reduction(self, sweep).print()

    def _statements(self, sweep: Sweep) -> None:
        for statement in sweep.statements:
            assert isinstance(statement, Store), "a reduction has loops"
            self.store(statement)

    def store(self, store: Store) -> None:
        """Print a store."""
        values = self.values
        values.faults.node = store.origin
        block = values.block
        comment = len(block.lines)
        index = values.index(store.index)
        target = f"{values.pointers[store.buffer]}[{index}]"
        value = values.text(store.value) if store.mode == "set" else values.named(store.value)
        line = f"{target} = {_combined(store, target, value)};"
        conditions = [] if store.guard is None else [values.text(store.guard)]
        conditions += [values.faults.store_guard(store.buffer, index)]
        conditions = [each for each in conditions if each]
        if conditions:
            line = f"if ({' && '.join(conditions)}) {line}"
        block.lines.append(line)
        if store.origin:
            block.lines.insert(comment, f"// {store.origin}")
        values.stored(store.buffer)

    def _scan(self, sweep: Sweep) -> None:
        values = self.values
        outer = values.block
        running: dict[str, str] = {}
        for scan in sweep.statements:
            if isinstance(scan, Scan):
                running[scan.name] = name = values.names.new(scan.name)
                ctype = _running_type(scan)
                outer.lines.append(f"{ctype} {name} = {_running_start(scan)};")
        (loop,) = sweep.inner
        with self.loop(loop) as inner:
            for statement in sweep.statements:
                if isinstance(statement, Scan):
                    name = running[statement.name]
                    value = values.text(statement.value)
                    inner.lines.append(f"// {statement.origin}")
                    inner.lines.append(_running_update(statement, name, value))
                    ctype = C_TYPES[statement.dtype]
                    wide = _running_type(statement) != ctype
                    inner.locals[statement.name] = f"({ctype}){name}" if wide else name
                elif isinstance(statement, Store):
                    self.store(statement)


class _Reduction:
    """A sweep with inner loops that is no scan."""

    def __init__(self, printer: SweepPrinter, sweep: Sweep) -> None:
        self.printer = printer
        self.values = printer.values
        self.sweep = sweep
        self.reduces = [each for each in sweep.statements if isinstance(each, Reduce)]
        self.last = sweep.inner[-1]
        size = self.last.size.number
        short = size is not None and size <= BLOCK
        self.in_blocks = not short and any(
            is_blocked(each) or each.kind.startswith("arg") for each in self.reduces
        )
        self.single = len(sweep.inner) == 1 and not self.in_blocks
        """The whole reduction is one SIMD loop."""
        self.totals: dict[str, str] = {}
        self.counts: dict[str, str] = {}

    def print(self) -> None:
        values = self.values
        outer = values.block
        for reduce in self.reduces:
            self._declare(reduce)
        self._loops(list(self.sweep.inner[:-1]))
        for reduce in self.reduces:
            for name, dtype in zip(reduce.names, reduce.dtypes, strict=True):
                total = self.totals[name]
                outer.locals[name] = self._result(
                    reduce, total, dtype, first=name == reduce.names[0]
                )

    def _declare(self, reduce: Reduce) -> None:
        values = self.values
        values.block.lines.append(f"// {reduce.origin}")
        ctype = C_TYPES[reduce.value.dtype] if self.single else wide_type(reduce)
        for position, name in enumerate(reduce.names):
            self.totals[name] = values.names.new(name)
            if position and reduce.kind.startswith("arg"):
                values.block.lines.append(f"int64_t {self.totals[name]} = -1;")
            else:
                start = identity(reduce.kind, reduce.value.dtype)
                values.block.lines.append(f"{ctype} {self.totals[name]} = {start};")
        if reduce.kind == "mean_m2" and not self.single:
            self.counts[reduce.names[0]] = count = values.names.new("count")
            values.block.lines.append(f"int64_t {count} = 0;")

    def _result(self, reduce: Reduce, total: str, dtype: Dtype, *, first: bool) -> str:
        """Return the code of a result, in its type."""
        if reduce.kind.startswith("arg") and not first:
            return total
        if self.single or wide_type(reduce) == C_TYPES[dtype]:
            return total
        name = self.values.names.new(f"{total}_all")
        self.values.block.lines.append(
            f"const {C_TYPES[dtype]} {name} = ({C_TYPES[dtype]}){total};"
        )
        return name

    def _loops(self, loops: list[Var]) -> None:
        if loops:
            with self.printer.loop(loops[0]):
                self._loops(loops[1:])
            return
        if not self.in_blocks:
            self._leaf("0", self.values.index(self.last.size))
            return
        name = self.values.names.of(self.last.name)
        start, stop = self.values.names.new(f"{name}_from"), self.values.names.new(f"{name}_to")
        size = self.values.index(self.last.size)
        head = f"for (int64_t {start} = 0; {start} < {size}; {start} += {BLOCK}) {{"
        with self.printer.block(head, is_loop=True) as inner:
            inner.lines.append(
                f"const int64_t {stop} = {start} + {BLOCK} < {size} ? {start} + {BLOCK} : {size};"
            )
            self._leaf(start, stop)

    def _leaf(self, start: str, stop: str) -> None:
        """Print the innermost loop from `start` to `stop`."""
        values = self.values
        parts: dict[str, str] = {}
        clauses: list[str] = []
        for reduce in self.reduces:
            name, dtype = reduce.names[0], reduce.value.dtype
            whole = self.single or not (
                is_blocked(reduce) or reduce.kind == "mean_m2" or reduce.kind.startswith("arg")
            )
            if whole and not reduce.kind.startswith("arg"):
                parts[name] = self.totals[name]
            else:
                parts[name] = values.names.new(f"{self.totals[name]}_part")
                begin = identity(reduce.kind, dtype)
                values.block.lines.append(f"{C_TYPES[dtype]} {parts[name]} = {begin};")
            clauses.append(clause(reduce.kind, dtype, parts[name]))
        pragma = " ".join(("#pragma omp simd", *clauses))
        with self.printer.loop(self.last, start=start, stop=stop, pragma=pragma) as inner:
            for statement in self.sweep.statements:
                if isinstance(statement, Reduce):
                    values.faults.node = statement.origin
                    value = values.text(statement.value)
                    name = parts[statement.names[0]]
                    inner.lines.append(update(statement.kind, statement.value.dtype, name, value))
                elif isinstance(statement, Store):
                    self.printer.store(statement)
        for reduce in self.reduces:
            self._finish_leaf(reduce, parts[reduce.names[0]], start, stop)

    def _finish_leaf(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        total = self.totals[reduce.names[0]]
        if reduce.kind == "mean_m2":
            self._squares(reduce, part, start, stop)
        elif reduce.kind.startswith("arg"):
            self._search(reduce, part, start, stop)
        elif part != total:
            self.values.block.lines.append(f"{total} += {part};")

    def _squares(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        """Print what follows a block's sum: its mean, the squares around it, the combination."""
        values = self.values
        dtype = reduce.value.dtype
        ctype = C_TYPES[dtype]
        count = stop if start == "0" else f"({stop} - {start})"
        mean, m2 = (self.totals[name] for name in reduce.names)
        if self.single:
            values.block.lines.append(f"{mean} = {part} / ({ctype}){count};")
            middle, squares = mean, m2
        else:
            middle, squares = values.names.new("middle"), values.names.new("squares")
            values.block.lines += [
                f"const {ctype} {middle} = {part} / ({ctype}){count};",
                f"{ctype} {squares} = 0;",
            ]
        pragma = f"#pragma omp simd reduction(+ : {squares})"
        with self.printer.loop(self.last, start=start, stop=stop, pragma=pragma) as inner:
            away = values.names.new("away")
            value = values.text(reduce.value)
            inner.lines.append(f"const {ctype} {away} = {value} - {middle};")
            inner.lines.append(f"{squares} += {away} * {away};")
        if self.single:
            return
        seen, wide = self.counts[reduce.names[0]], wide_type(reduce)
        apart, share = values.names.new("apart"), values.names.new("share")
        values.block.lines += [
            f"const {wide} {apart} = {middle} - {mean};",
            f"const {wide} {share} = ({wide}){count} / ({seen} + {count});",
            f"{mean} += {apart} * {share};",
            f"{m2} += {squares} + {apart} * {apart} * {seen} * {share};",
            f"{seen} += {count};",
        ]

    def _search(self, reduce: Reduce, part: str, start: str, stop: str) -> None:
        """Print what follows a block's extreme: if it is a new one, its first place."""
        values = self.values
        best, place = (self.totals[name] for name in reduce.names)
        sign = ">" if reduce.kind == "argmax" else "<"
        newer = f"{place} < 0 || {part} {sign} {best}"
        same = "{value} == {part}"
        if reduce.value.dtype.is_floating_point:
            newer += f" || ({part} != {part} && {best} == {best})"
            same = "({value} == {part} || {value} != {value})"
        with self.printer.block(f"if ({newer}) {{") as found:
            found.lines.append(f"{best} = {part};")
            found.lines.append(f"{place} = -1;")
            condition = f"{place} < 0"
            with self.printer.loop(self.last, start=start, stop=f"{stop} && {condition}") as inner:
                value = values.named(reduce.value)
                at = values.index(_flattened(self.sweep.inner))
                test = same.format(value=value, part=part)
                inner.lines.append(f"if ({test}) {place} = {at};")


def _flattened(loops: tuple[Var, ...]) -> Index:
    total = ONE * 0
    for loop in loops:
        total = total * loop.size + of_atom(loop)
    return total


def _combined(store: Store, target: str, value: str) -> str:
    """Return what a store writes, of its value and what is there."""
    if store.mode == "set":
        return value
    dtype = store.value.dtype
    wide = torch.float32 if is_narrow(dtype) else dtype
    old, new = cast_code(target, dtype, wide), cast_code(value, dtype, wide)
    if store.mode in ("add", "prod"):
        sign = "|" if dtype == torch.bool else "+" if store.mode == "add" else "*"
        return cast_code(f"{old} {sign} {new}", wide, dtype)
    return cast_code(f"{store.mode}imum_{SUFFIXES[wide]}({old}, {new})", wide, dtype)


def _running_type(scan: Scan) -> str:
    if scan.dtype == torch.float32 and scan.kind in ("sum", "prod", "logsumexp"):
        return "double"
    return C_TYPES[scan.dtype]


def _running_start(scan: Scan) -> str:
    return "-INFINITY" if scan.kind == "logsumexp" else identity(scan.kind, scan.dtype)


def _running_update(scan: Scan, name: str, value: str) -> str:
    if scan.kind == "logsumexp":
        return f"{name} = logaddexp_f64({name}, {value});"
    return update(scan.kind, scan.dtype, name, value)
