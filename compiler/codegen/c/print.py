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

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ctk.compiler.codegen.c.faults import Check, Faults
from ctk.compiler.codegen.c.functions import FUNCTIONS
from ctk.compiler.codegen.c.loops import GRAIN, joined, work_of, writes_apart
from ctk.compiler.codegen.c.sweeps import SweepPrinter
from ctk.compiler.codegen.c.types import C_TYPES, Names
from ctk.compiler.codegen.c.values import Values
from ctk.compiler.lowering.arguments import Arguments, arguments_of
from ctk.compiler.lowering.index import ZERO, Index, Var, product
from ctk.compiler.lowering.ir import Buffer, Kernel


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel as C.

    Attributes:
        name: Of the function.
        text: The function.
        checks: What it checks, numbered from 1; empty if it returns nothing.
    """

    name: str
    text: str
    checks: tuple[Check, ...]


def kernel_code(
    kernel: Kernel, buffers: Mapping[str, Buffer], *, name: str, check_bounds: bool = False
) -> KernelCode:
    """Print a kernel.

    Args:
        kernel: Maybe fused.
        buffers: Those that it reads and writes, and maybe others.
        name: Of the C function, within its file.
        check_bounds: Check each load and store against the size of its buffer.
    """
    return _KernelPrinter(kernel, buffers, name, check_bounds).code()


class _KernelPrinter:
    """One kernel on its way to C."""

    def __init__(
        self, kernel: Kernel, buffers: Mapping[str, Buffer], name: str, check_bounds: bool
    ) -> None:
        self.kernel = joined(kernel)
        self.arguments: Arguments = arguments_of(kernel)
        self.buffers = buffers
        self.name = name
        names = Names(reserved=frozenset((*FUNCTIONS, name)))
        symbols = {symbol: names.of(symbol.name) for symbol in self.arguments.symbols}
        pointers = {buffer: names.of(buffer) for buffer in self.arguments.buffers}
        written = frozenset(self.arguments.written)
        self.values = Values(names, pointers, symbols, written, Faults())
        if check_bounds:
            self.values.faults.limits = {
                each: self.values.index(_extent(buffers[each])) for each in pointers
            }
        self.sweeps = SweepPrinter(self.values)

    def code(self) -> KernelCode:
        body = self.values.block
        self._loops(self.kernel.outer)
        checks = tuple(self.values.faults.checks)
        lines = body.lines
        if checks:
            lines = ["fault_t fault = {0};", *lines, "return finish(&fault);"]
        head = f"{'int64_t' if checks else 'void'} {self.name}({self._parameters()}) {{"
        return KernelCode(self.name, "\n".join((head, *(f"    {x}" for x in lines), "}")), checks)

    def _parameters(self) -> str:
        values = self.values
        parts: list[str] = []
        for buffer in self.arguments.buffers:
            const = "" if buffer in values.written else "const "
            ctype = C_TYPES[self.buffers[buffer].dtype]
            parts.append(f"{const}{ctype}* restrict {values.pointers[buffer]}")
        parts += [f"int64_t {values.symbols[symbol]}" for symbol in self.arguments.symbols]
        return ", ".join(parts) or "void"

    def _loops(self, loops: tuple[Var, ...]) -> None:
        """Print the outer loops from here on, and the sweeps within them."""
        if not loops:
            for sweep in self.kernel.sweeps:
                self.sweeps.print(sweep)
            return
        first, *rest = loops
        pragmas: list[str] = []
        if loops == self.kernel.outer and writes_apart(self.kernel, first):
            pragmas.append(self._parallel())
        if not rest and self._is_pointwise() and writes_apart(self.kernel, first):
            pragmas.append("simd")
        with self.sweeps.loop(first, pragma=_pragma(pragmas)):
            self._loops(tuple(rest))

    def _is_pointwise(self) -> bool:
        return all(not sweep.inner for sweep in self.kernel.sweeps)

    def _parallel(self) -> str:
        work = work_of(self.kernel)
        if work.number is not None:
            return "parallel for" if work.number >= GRAIN else ""
        return f"parallel for if ({self.values.index(work)} >= {GRAIN})"


def _pragma(parts: list[str]) -> str:
    """Return one pragma of several; `parallel for if (c)` and `simd` are `parallel for simd if (c)`."""
    words = [part for part in parts if part]
    if not words:
        return ""
    if len(words) == 2:
        words[0] = words[0].replace("parallel for", "parallel for simd", 1)
    return f"#pragma omp {words[0]}"


def _extent(buffer: Buffer) -> Index:
    """Return how many elements a buffer has from its first to its last."""
    if any(size == ZERO for size in buffer.shape):
        return ZERO
    pairs = zip(buffer.shape, buffer.strides, strict=True)
    return sum(((size - 1) * stride for size, stride in pairs), product([]))
