"""Print a sweep of running results: one step after the other, costly values apart in lanes.

    for r < 1024: s += exp(x[r]); out[r] = log(s)
becomes
    for r < 1024: kept[r] = exp(x[r])               lanes
    for r < 1024: s += kept[r]; scan[r] = s         one step after the other
    for r < 1024: out[r] = log(scan[r])             lanes

A running logarithm of a sum of exponentials has no costly step either. Its exponentials are
relative to the running maximum, so that a step is one product and one sum:

    m[r] = max(m[r - 1], x[r]);  s = s * exp(m[r - 1] - m[r]) + exp(x[r] - m[r])
    result m[r] + log(s)

Rows that are longer than `LONGEST`, and columns side by side, have one loop for all.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch

from ctk.compiler.codegen.c.accumulators import identity, update
from ctk.compiler.codegen.c.plan import cost_of
from ctk.compiler.codegen.c.row_cache import LONGEST
from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.types import C_TYPES
from ctk.compiler.lowering.ir import Scan, Statement, Store, Sweep
from ctk.compiler.lowering.merge import locals_of
from ctk.compiler.lowering.walk import walk

_LANES = "#pragma omp simd"


class ScanPrinter:
    """Prints one sweep with scans."""

    def __init__(self, printer: SweepPrinter, sweep: Sweep) -> None:
        self.printer = printer
        self.values = printer.values
        self.sweep = sweep
        (self.loop,) = sweep.inner
        self.scans = [each for each in sweep.statements if isinstance(each, Scan)]
        self.stores = [each for each in sweep.statements if isinstance(each, Store)]
        self.made: dict[str, str] = {}

    def print(self) -> None:
        """Print the sweep."""
        self.values.count(self.sweep.statements)
        late: list[Store] = []
        if self.printer.tile is None and 0 < (self.loop.size.number or 0) <= LONGEST:
            self._prepare()
            late = [store for store in self.stores if self.made or _is_costly(store)]
        self._run([scan for scan in self.scans if scan.name not in self.made], late)
        if late:
            with self.printer.row(self.loop, late, "0", "", _LANES) as inner:
                at = inner.places[self.loop]
                inner.locals |= {name: f"{array}[{at}]" for name, array in self.made.items()}
                for store in late:
                    self.printer.store(store)

    def _prepare(self) -> None:
        """Print the lanes of costly values, and of logarithms of sums."""
        names = {scan.name for scan in self.scans}
        free = [scan for scan in self.scans if names.isdisjoint(locals_of(scan))]
        costly = [scan for scan in free if _is_costly(scan) and scan.kind != "logsumexp"]
        if costly:
            self.printer.keep_more([scan.value for scan in costly])
            with self.printer.row(self.loop, costly, "0", "", _LANES):
                pass
        for scan in free:
            if scan.kind == "logsumexp":
                self._logarithms(scan)

    def _run(self, scans: Sequence[Scan], late: Sequence[Store]) -> None:
        """Print the loop of steps; the results that late stores need go to arrays."""
        early = [each for each in self.sweep.statements if each in scans or each in self.stores]
        early = [each for each in early if each not in late]
        if not early:
            return
        values, running = self.values, dict[str, str]()
        for scan in scans:
            running[scan.name] = name = values.names.new(scan.name)
            self.printer.declare(_running_type(scan), name, identity(scan.kind, scan.dtype))
            if late:
                self.made[scan.name] = array = values.names.new(f"{scan.name}_row")
                values.block.lines.append(f"{C_TYPES[scan.dtype]} {array}[{self.loop.size}];")
        with self._steps(early):
            for statement in early:
                if isinstance(statement, Scan):
                    self._step(statement, self.printer.variable(running[statement.name]))
                elif isinstance(statement, Store):
                    self.printer.store(statement)

    @contextmanager
    def _steps(self, statements: Sequence[Statement]) -> Generator[None]:
        if self.printer.tile is None:
            with self.printer.row(self.loop, statements, "0", "", ""):
                yield
            return
        with self.printer.loop(self.loop), self.printer.lanes():
            yield

    def _step(self, scan: Scan, name: str) -> None:
        values, block = self.values, self.values.block
        line = update(scan.kind, scan.dtype, name, values.text(scan.value))
        block.lines += [f"// {scan.origin}", line]
        ctype = C_TYPES[scan.dtype]
        result = f"(({ctype}){name})" if _running_type(scan) != ctype else name
        block.locals[scan.name] = result
        if scan.name in self.made:
            at = self.values.names.of(self.loop.name)
            block.lines.append(f"{self.made[scan.name]}[{at}] = {result};")

    def _logarithms(self, scan: Scan) -> None:
        """Print the running logarithms of sums of a row, into an array."""
        names, size, i = self.values.names, self.loop.size, self.values.names.of(self.loop.name)
        sums, share, top, total = (names.new(f"{scan.name}_{n}") for n in _PARTS)
        lines = self.values.block.lines
        lines += [f"double {sums}[{size}], {share}[{size}], {top}[{size} + 1], {total} = 0;"]
        with self.printer.row(self.loop, [scan], "0", "", _LANES) as inner:
            inner.lines.append(f"{sums}[{i}] = {self.values.text(scan.value)};")
        each = f"for (int64_t {i} = 0; {i} < {size}; ++{i})"
        x, low, high = f"{sums}[{i}]", f"{top}[{i}]", f"{top}[{i} + 1]"
        lines += [
            f"// {scan.origin}",
            f"{top}[0] = -INFINITY;",
            f"{each} {high} = {x} > {low} || {x} != {x} ? {x} : {low};",
            _LANES,
            f"{each} {{",
            f"    const double grown = exp_f64({low} - {high}), part = exp_f64({x} - {high});",
            f"    {share}[{i}] = {low} == {high} ? 1 : grown;",
            f"    {x} = {x} == {high} ? {x} != -INFINITY : {x} == -INFINITY ? 0 : part;",
            "}",
            f"{each} {x} = {total} = {total} * {share}[{i}] + {x};",
            _LANES,
            f"{each} {x} = {high} + log_f64({x});",
        ]
        self.made[scan.name] = sums


_PARTS = ("sums", "share", "top", "total")


def _is_costly(statement: Statement) -> bool:
    return any(cost_of(value) > 1 for value in walk(statement))


def _running_type(scan: Scan) -> str:
    if scan.dtype == torch.float32 and scan.kind in ("sum", "prod", "logsumexp"):
        return "double"
    return C_TYPES[scan.dtype]
