"""Compile kernels with the system's C compiler, and launch them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal

from ctk.compiler.choices import Options
from ctk.compiler.codegen.c.libraries import Loaded, load
from ctk.compiler.codegen.c.print import KernelCode, kernel_code
from ctk.compiler.codegen.c.types import Names
from ctk.compiler.codegen.schedule.generator import CompiledKernel
from ctk.compiler.lowering.arguments import arguments_of
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.runtime.c_kernels import CKernel


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
    compiled: list[CompiledKernel] = []
    loaded = load(codes, _flags(options))
    for kernel, code, found, seconds in zip(kernels, codes, loaded, printing, strict=True):
        made = _kernel(found, kernel, code)
        taken = found.seconds + seconds
        compiled.append(CompiledKernel(kernel, code.text, made.launcher(), taken, made.stored))
    return compiled


def _flags(options: COptions) -> list[str]:
    flags = list(options.flags)
    if "undefined" in options.sanitize:
        flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    return flags


def _kernel(found: Loaded, kernel: Kernel, code: KernelCode) -> CKernel:
    arguments = arguments_of(kernel)
    counts = len(arguments.buffers), len(arguments.symbols)
    return CKernel(found.library, found.name, *counts, code.checks, kernel.name)
