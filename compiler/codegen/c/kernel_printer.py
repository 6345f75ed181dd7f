"""Print a kernel of the loop IR as one C function.

    void kernel_out(float* restrict out, const float* restrict x) {
        #pragma omp parallel for
        for (int64_t i0 = 0; i0 < 4096; ++i0) {
            float mean = ...                                  // a sweep that reduces
            #pragma omp simd
            for (int64_t r0 = 0; r0 < 768; ++r0) {
                // native_layer_norm
                out[i0*768 + r0] = (x[i0*768 + r0] - mean) * rstd;

The buffers of a call must not overlap. A function of a kernel that checks something as it runs
returns the number of the check that failed, or 0.
"""

import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from ctk.compiler.codegen.c.faults import Faults
from ctk.compiler.codegen.c.functions import FUNCTIONS
from ctk.compiler.codegen.c.loop_splitting import pieces
from ctk.compiler.codegen.c.loops import joined, writes_apart
from ctk.compiler.codegen.c.plan import GRAIN, is_pointwise, laid_out, plan_of, work_of
from ctk.compiler.codegen.c.reduce_sweep import ReducePrinter
from ctk.compiler.codegen.c.row_cache import kept_values
from ctk.compiler.codegen.c.sweeps import SweepPrinter, Tile
from ctk.compiler.codegen.c.transpose import SIDE, Transposed, transposed
from ctk.compiler.codegen.c.types import Names, grouped, memory_type
from ctk.compiler.codegen.c.values import Block, Values
from ctk.compiler.lowering.ir import Buffer, Kernel, Load, Scan, Sweep
from ctk.compiler.lowering.layout import extent_of
from ctk.compiler.lowering.walk import Arguments, arguments_of
from ctk.compiler.runtime.c_kernels import Check
from ctk.compiler.sizes.index import Var

_WORD = re.compile(r"\b[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel as C.

    Attributes:
        checks: Its checks, numbered from 1; empty if it returns nothing.
        names: The identifiers that are local to this function.
    """

    name: str
    text: str
    checks: tuple[Check, ...]
    names: frozenset[str] = frozenset()

    def canonical(self) -> str:
        """Return the text with its own names numbered, and no comments.

        It is the same for two kernels if they differ in nothing else.
        """
        numbers: dict[str, str] = {}

        def numbered(found: re.Match[str]) -> str:
            word = found.group()
            if word not in self.names and word != self.name:
                return word
            return numbers.setdefault(word, f"${len(numbers)}")

        lines = (line.partition("//")[0].rstrip() for line in self.text.splitlines())
        return _WORD.sub(numbered, "\n".join(filter(None, lines)))


def kernel_code(
    kernel: Kernel, buffers: Mapping[str, Buffer], *, name: str, check_bounds: bool = False
) -> KernelCode:
    """Print a kernel."""
    return _KernelPrinter(kernel, buffers, name, check_bounds).code()


class _KernelPrinter:
    """One kernel on its way to C."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], name: str, check_bounds: bool
    ) -> None:
        self.kernel = joined(laid_out(kernel))
        self.arguments: Arguments = arguments_of(kernel)
        self.buffers = buffers
        self.shared = _sharing(self.arguments.buffers, buffers)
        self.name = name
        names = Names(reserved=frozenset((*FUNCTIONS, name)))
        symbols = {symbol: names.new(symbol.name) for symbol in self.arguments.symbols}
        pointers = {buffer: names.new(buffer) for buffer in self.arguments.buffers}
        written = frozenset(self.arguments.written)
        self.values = Values(names, pointers, symbols, written, Faults())
        if check_bounds:
            self.values.faults.limits = {
                pointer: self.values.index(extent_of(buffers[pointer])) for pointer in pointers
            }
        self.printer = SweepPrinter(self.values, lambda var: writes_apart(self.kernel, var))
        self.plan = plan_of(self.kernel)
        self.crossing = transposed(self.kernel)
        if not all(writes_apart(self.kernel, loop) for loop in self.kernel.outer):
            self.crossing = None

    def code(self) -> KernelCode:
        body = self.values.block
        self._loops(self.kernel.outer, self.kernel.sweeps)
        checks = tuple(self.values.faults.checks)
        lines = body.lines
        if checks:
            lines = ["fault_t fault = {0};", *lines, "return finish(&fault);"]
        head = f"{'int64_t' if checks else 'void'} {self.name}({self._parameters()}) {{"
        text = "\n".join((head, *(f"    {x}" for x in lines), "}"))
        return KernelCode(self.name, text, checks, self.values.names.taken)

    def _parameters(self) -> str:
        values = self.values
        parts: list[str] = []
        for buffer in self.arguments.buffers:
            const = "" if buffer in values.written else "const "
            ctype = memory_type(self.buffers[buffer].dtype)
            restrict = "" if buffer in self.shared else "restrict "
            parts.append(f"{const}{ctype}* {restrict}{values.pointers[buffer]}")
        parts += [f"int64_t {values.symbols[symbol]}" for symbol in self.arguments.symbols]
        return ", ".join(parts) or "void"

    def _loops(self, loops: tuple[Var, ...], sweeps: tuple[Sweep, ...]) -> None:
        if not loops:
            self.printer.keep(kept_values(sweeps, self.values.numbers, self.plan))
            for sweep in sweeps:
                self._sweep(sweep)
            return
        if self.crossing is not None and loops == self.kernel.outer:
            self._crossed(self.crossing, loops, sweeps)
            return
        first, *rest = loops
        words = self._threads() if loops == self.kernel.outer else []
        if not rest and self.plan.width:
            self._tiles(first, words, sweeps)
            return
        if not rest and is_pointwise(self.kernel):
            words.append("simd")
        if not writes_apart(self.kernel, first):
            words = []
        for part, inside in pieces(first, sweeps):
            with self.printer.loop(part, pragma=_pragma(words)):
                self._loops(tuple(rest), inside)

    def _crossed(
        self, found: Transposed, loops: tuple[Var, ...], sweeps: tuple[Sweep, ...]
    ) -> None:
        """Print the loops of a kernel some of whose loads are transposed: in square tiles."""
        values, printer = self.values, self.printer
        others = [loop for loop in loops if loop not in (found.across, found.along)]
        with ExitStack() as stack:
            pragma = _pragma(self._threads())
            for loop in others:
                stack.enter_context(printer.loop(loop, pragma=pragma))
                pragma = ""
            bounds: dict[Var, tuple[str, str]] = {}
            for loop in (found.across, found.along):
                name, size = values.names.of(loop.name), values.index(loop.size)
                tile = printer.pieces(name, size, SIDE, pragma=pragma)
                bounds[loop] = stack.enter_context(tile)
                pragma = ""
            arrays = [self._copied(load, found, bounds) for load in found.loads]
            low, high = bounds[found.across]
            with printer.loop(found.across, start=low, stop=high) as outer:
                low, high = bounds[found.along]
                with printer.loop(
                    found.along, start=low, stop=high, pragma="#pragma omp simd"
                ) as inner:
                    rows = outer.places[found.across], bounds[found.across][0]
                    columns = inner.places[found.along], low
                    for load, array in zip(found.loads, arrays, strict=True):
                        place = f"[{rows[0]} - {rows[1]}][{columns[0]} - {columns[1]}]"
                        inner.names[values.numbers.of(load)] = f"{array}{place}"
                    self._loops((), sweeps)

    def _copied(self, load: Load, found: Transposed, bounds: Mapping[Var, tuple[str, str]]) -> str:
        """Print the copy of a tile along the rows of its memory, and return its array."""
        values, printer = self.values, self.printer
        array = values.names.new("tile")
        values.block.lines.append(f"{memory_type(load.dtype)} {array}[{SIDE}][{SIDE}];")
        (across, last), (along, end) = bounds[found.across], bounds[found.along]
        bits = load.dtype.itemsize * 8
        if f"transpose_{bits}" in FUNCTIONS and not values.faults.limits:
            start, step = self._corner(load, found, bounds)
            given = f"(uint{bits}_t (*)[{SIDE}]){array}, (const uint{bits}_t*){start}, {step}"
            sizes = f"{end} - {along}, {last} - {across}"
            values.block.lines.append(f"transpose_{bits}({given}, {sizes});")
            return array
        with (
            printer.loop(found.along, start=along, stop=end) as outer,
            printer.loop(found.across, start=across, stop=last) as inner,
        ):
            place = (
                f"[{inner.places[found.across]} - {across}][{outer.places[found.along]} - {along}]"
            )
            inner.lines.append(f"{array}{place} = {values.text(load)};")
        return array

    def _corner(
        self, load: Load, found: Transposed, bounds: Mapping[Var, tuple[str, str]]
    ) -> tuple[str, str]:
        """Return where a tile of a load begins, and how far apart its rows are."""
        values, outside = self.values, self.values.block
        places = {loop: bounds[loop][0] for loop in (found.across, found.along)}
        values.block = Block(outside, places=places)
        start = f"&{values.pointers[load.buffer]}[{values.index(load.index)}]"
        values.block = outside
        step = load.index.factor_of(found.along)
        assert step is not None
        return start, grouped(values.index(step))

    def _tiles(self, loop: Var, words: list[str], sweeps: tuple[Sweep, ...]) -> None:
        name, size = self.values.names.of(loop.name), self.values.index(loop.size)
        words = words if writes_apart(self.kernel, loop) else []
        width = self.plan.width
        with self.printer.pieces(name, size, width, pragma=_pragma(words)) as (start, stop):
            self.printer.tile = Tile(loop, start, stop, width)
            self._loops((), sweeps)
            self.printer.tile = None

    def _sweep(self, sweep: Sweep) -> None:
        if not sweep.inner:
            self.printer.print_statements(sweep)
        elif any(isinstance(statement, Scan) for statement in sweep.statements):
            self.printer.print_scan(sweep)
        else:
            ReducePrinter(self.printer, sweep, self.plan.chunks).print()

    def _threads(self) -> list[str]:
        work = work_of(self.kernel)
        if self.plan.chunks > 1 or (work.number is not None and work.number < GRAIN):
            return []
        if work.number is not None:
            return ["parallel for"]
        return [f"parallel for if ({self.values.index(work)} >= {GRAIN})"]


def _pragma(words: list[str]) -> str:
    """Return one pragma: `parallel for if (c)` and `simd` are `parallel for simd if (c)`."""
    if len(words) == 2:
        words = [words[0].replace("parallel for", "parallel for simd", 1)]
    return f"#pragma omp {words[0]}" if words else ""


def _sharing(names: tuple[str, ...], buffers: Mapping[str, Buffer]) -> frozenset[str]:
    """Return the buffers of a kernel that use the same memory as another one of it."""
    roots: dict[str, list[str]] = {}
    for name in names:
        root = name
        while buffers[root].memory:
            root = buffers[root].memory
        roots.setdefault(root, []).append(name)
    return frozenset(name for group in roots.values() if len(group) > 1 for name in group)
