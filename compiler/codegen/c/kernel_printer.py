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

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ctk.compiler.codegen.c.attention_printer import attention_code
from ctk.compiler.codegen.c.kernel_function import KernelCode, function_code, values_for
from ctk.compiler.codegen.c.loop_splitting import pieces, unrolled
from ctk.compiler.codegen.c.loops import joined, writes_apart
from ctk.compiler.codegen.c.plan import GRAIN, is_pointwise, laid_out, plan_of, work_of
from ctk.compiler.codegen.c.reduce_sweep import ReducePrinter
from ctk.compiler.codegen.c.residues import residues
from ctk.compiler.codegen.c.row_cache import kept_values
from ctk.compiler.codegen.c.scan_printer import ScanPrinter
from ctk.compiler.codegen.c.short_reductions import write_out
from ctk.compiler.codegen.c.sweeps import SweepPrinter, Tile
from ctk.compiler.codegen.c.tile_printer import print_rows, print_tiles
from ctk.compiler.codegen.c.transpose import crossing, turned_rows
from ctk.compiler.codegen.c.values import Block
from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.ir import Buffer, Kernel, Load, Scan, Sweep
from ctk.compiler.lowering.own_memory import require_own_memory
from ctk.compiler.lowering.walk import Arguments, arguments_of
from ctk.compiler.sizes.index import Var


def kernel_code(
    kernel: Kernel, buffers: Mapping[str, Buffer], *, name: str, check_bounds: bool = False
) -> KernelCode:
    """Print a kernel.

    Raises:
        CodegenUnsupported: It may read memory that it has written.
    """
    if isinstance(kernel, Attention):
        return attention_code(kernel, buffers, name=name, check_bounds=check_bounds)
    require_own_memory(kernel, buffers)
    return _KernelPrinter(kernel, buffers, name, check_bounds).code()


class _KernelPrinter:
    """One kernel on its way to C."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], name: str, check_bounds: bool
    ) -> None:
        self.kernel = _laid_out(kernel)
        self.arguments: Arguments = arguments_of(kernel)
        self.buffers = buffers
        self.name = name
        self.values = values_for(self.arguments, buffers, name, check_bounds=check_bounds)
        self.printer = SweepPrinter(self.values, lambda var: writes_apart(self.kernel, var))
        self.plan = plan_of(self.kernel)

    def code(self) -> KernelCode:
        self._loops(self.kernel.outer, self.kernel.sweeps, self._threads())
        return function_code(self.name, self.values, self.arguments, self.buffers)

    def _loops(self, loops: tuple[Var, ...], sweeps: tuple[Sweep, ...], words: list[str]) -> None:
        """Print some sweeps in loops; the outermost one is shared among threads by `words`."""
        if not loops:
            self.printer.keep(kept_values(sweeps, self.values.numbers, self.plan))
            for sweep in sweeps:
                self._sweep(sweep)
            return
        if self._crossed(loops, sweeps, words):
            return
        first, *rest = loops
        if not rest and self.plan.width:
            self._tiles(first, words, sweeps)
            return
        if not rest and is_pointwise(self.kernel):
            words = [*words, "simd"]
        apart = writes_apart(self.kernel, first)
        turned = self._turned(first, sweeps) if apart and not rest else []
        if turned:
            print_rows(
                self.printer, turned, first, _pragma(words), lambda: self._loops((), sweeps, [])
            )
            return
        found = pieces(first, sweeps)
        if not rest and is_pointwise(self.kernel):
            found = [each for piece in found for each in residues(*piece)]
        for part, inside in found:
            if not any(sweep.statements for sweep in inside):
                continue
            if not part:
                self._loops(tuple(rest), inside, words if rest else [])
            for loop in part:
                pragma = _pragma(words if apart else [])
                with self._loop(loop, inside, pragma, last=not rest):
                    self._loops(tuple(rest), inside, [])

    def _turned(self, loop: Var, sweeps: tuple[Sweep, ...]) -> list[tuple[Load, Var]]:
        if self.plan.width or self.plan.chunks > 1 or self.values.faults.limits:
            return []
        return turned_rows(loop, sweeps)

    def _loop(
        self, loop: Var, sweeps: Sequence[Sweep], pragma: str, *, last: bool
    ) -> AbstractContextManager[Block]:
        if not last or not is_pointwise(self.kernel):
            return self.printer.loop(loop, pragma=pragma)
        statements = [statement for sweep in sweeps for statement in sweep.statements]
        return self.printer.simd(loop, statements, pragma=pragma)

    def _crossed(self, loops: tuple[Var, ...], sweeps: tuple[Sweep, ...], words: list[str]) -> bool:
        """Print loops some of whose accesses are transposed, in tiles; return whether any are.

        Loops around pieces of which some are transposed are printed for each piece.
        """
        if not is_pointwise(self.kernel) or self.values.faults.limits:
            return False
        if not all(writes_apart(self.kernel, loop) for loop in loops):
            return False
        found = crossing(loops, sweeps)
        if found is not None:
            print_tiles(
                self.printer, found, loops, _pragma(words), lambda: self._loops((), sweeps, [])
            )
            return True
        for place, loop in enumerate(loops):
            parts = [
                ((*loops[:place], *part, *loops[place + 1 :]), inside)
                for part, inside in pieces(loop, sweeps)
            ]
            if len(parts) > 1 and any(crossing(*part) for part in parts):
                for part in parts:
                    self._loops(*part, words)
                return True
        return False

    def _tiles(self, loop: Var, words: list[str], sweeps: tuple[Sweep, ...]) -> None:
        name, size = self.values.names.of(loop.name), self.values.index(loop.size)
        words = words if writes_apart(self.kernel, loop) else []
        width = self.plan.width
        with self.printer.pieces(name, size, width, pragma=_pragma(words)) as (start, stop):
            self.printer.tile = Tile(loop, start, stop, width)
            self._loops((), sweeps, [])
            self.printer.tile = None

    def _sweep(self, sweep: Sweep) -> None:
        if not sweep.inner:
            self.printer.print_statements(sweep)
        elif any(isinstance(statement, Scan) for statement in sweep.statements):
            ScanPrinter(self.printer, sweep).print()
        else:
            ReducePrinter(self.printer, sweep, self.plan.chunks).print()

    def _threads(self) -> list[str]:
        work = work_of(self.kernel)
        if self.plan.chunks > 1 or (work.number is not None and work.number < GRAIN):
            return []
        if work.number is not None:
            return ["parallel for"]
        return [f"parallel for if ({self.values.index(work)} >= {GRAIN})"]


def _laid_out(kernel: Kernel) -> Kernel:
    """Return a kernel with its loops as they run: ordered, joined and unrolled."""
    kernel = joined(laid_out(write_out(kernel)))
    short = unrolled(kernel)
    same = (short.outer, short.sweeps) == (kernel.outer, kernel.sweeps)
    return kernel if same else joined(laid_out(short))


def _pragma(words: list[str]) -> str:
    """Return one pragma: `parallel for if (c)` and `simd` are `parallel for simd if (c)`."""
    if len(words) == 2:
        words = [words[0].replace("parallel for", "parallel for simd", 1)]
    return f"#pragma omp {words[0]}" if words else ""
