"""Compile kernels with the system's C compiler, and launch them."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

from ctk.compiler.choices import Options
from ctk.compiler.codegen.c.faults import fault_error
from ctk.compiler.codegen.c.libraries import Loaded, load
from ctk.compiler.codegen.c.print import KernelCode, kernel_code
from ctk.compiler.codegen.c.types import Names
from ctk.compiler.codegen.schedule.generator import CompiledKernel
from ctk.compiler.lowering.arguments import arguments_of
from ctk.compiler.lowering.ir import Buffer, Kernel


@dataclass(frozen=True, slots=True)
class COptions(Options):
    """How kernels are compiled.

    Attributes:
        sanitize: "address" checks each load and store, "undefined" traps on undefined behaviour.
        flags: Further flags of the compiler.
    """

    name: ClassVar[str] = "c"

    sanitize: tuple[Literal["address", "undefined"], ...] = ()
    flags: tuple[str, ...] = ()


def compile_kernels(
    kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], options: COptions | None = None
) -> list[CompiledKernel]:
    """Print, compile and load kernels.

    Raises:
        CodegenUnsupported: There is no C compiler, or it does not take the code.
    """
    if not kernels:
        return []
    options = options or COptions()
    names = Names()
    check_bounds = "address" in options.sanitize
    codes: list[KernelCode] = []
    times = [time.perf_counter()]
    for kernel in kernels:
        name = names.new(f"kernel_{kernel.name}")
        codes.append(kernel_code(kernel, buffers, name=name, check_bounds=check_bounds))
        times.append(time.perf_counter())
    printing = (after - before for before, after in pairwise(times))
    return [
        CompiledKernel(kernel, code.text, _launcher(found, kernel, code), found.seconds + seconds)
        for kernel, code, found, seconds in zip(
            kernels, codes, load(codes, _flags(options)), printing, strict=True
        )
    ]


def _flags(options: COptions) -> list[str]:
    flags = list(options.flags)
    if "undefined" in options.sanitize:
        flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    return flags


def _launcher(found: Loaded, kernel: Kernel, code: KernelCode) -> Callable[..., None]:
    arguments = arguments_of(kernel)
    function = found.library[found.name]
    pointers, sizes = len(arguments.buffers), len(arguments.symbols)
    function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
    function.restype = ctypes.c_int64 if code.checks else None
    if not code.checks:
        return function

    def launch(*given: int) -> None:
        if function(*given):
            fault = (ctypes.c_int64 * 3)()
            found.library.read_last_fault(fault)
            check, index, size = fault
            raise fault_error(code.checks[check - 1], kernel.name, index, size)

    return launch
