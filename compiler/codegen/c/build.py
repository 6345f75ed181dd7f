"""Compile kernels with the system's C compiler, and launch them."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, Literal

from ctk.compiler.codegen.c.kernel_printer import KernelCode, kernel_code
from ctk.compiler.codegen.c.libraries import load
from ctk.compiler.codegen.c.toolchain import command_with
from ctk.compiler.codegen.c.types import Names
from ctk.compiler.codegen.schedule.generator import CompiledKernel
from ctk.compiler.errors import ArtifactError
from ctk.compiler.lowering.arguments import arguments_of
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.options.choices import Options
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


@dataclass(frozen=True, slots=True)
class PrintedKernel:
    """A kernel that is printed, and not compiled."""

    code: KernelCode
    kernel: CKernel


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
    codes, times = _printed(kernels, buffers, options)
    printing = (after - before for before, after in pairwise(times))
    compiled: list[CompiledKernel] = []
    loaded = load(codes, flags_of(options))
    for kernel, code, found, seconds in zip(kernels, codes, loaded, printing, strict=True):
        made, library = _kernel(kernel, code, found.name), found.library
        run, taken = made.launcher(library), found.seconds + seconds
        stored = partial(made.stored, f"{library.digest}.so", library.binary)
        compiled.append(CompiledKernel(kernel, code.text, run, taken, stored))
    return compiled


def print_kernels(
    kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], options: COptions
) -> list[CompiledKernel]:
    """Print kernels for a package, which compiles them; they cannot be launched here.

    Raises:
        CodegenUnsupported: There is no C compiler.
    """
    command_with(options.flags)
    codes, times = _printed(kernels, buffers, options)
    printing = (after - before for before, after in pairwise(times))
    return [
        CompiledKernel(
            kernel, code.text, _only_printed, seconds, _only_printed,
            PrintedKernel(code, _kernel(kernel, code, code.name)),
        )
        for kernel, code, seconds in zip(kernels, codes, printing, strict=True)
    ]  # fmt: skip


def _only_printed(*given: int) -> Any:
    raise ArtifactError("this graph was compiled for a package (kernels.ahead_of_time)")


def _printed(
    kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], options: COptions
) -> tuple[list[KernelCode], list[float]]:
    names = Names()
    check_bounds = "address" in options.sanitize
    codes: list[KernelCode] = []
    times = [time.perf_counter()]
    for kernel in kernels:
        name = names.new(f"kernel_{kernel.name}")
        codes.append(kernel_code(kernel, buffers, name=name, check_bounds=check_bounds))
        times.append(time.perf_counter())
    return codes, times


def flags_of(options: COptions) -> list[str]:
    """Return the flags of the compiler besides the usual ones."""
    flags = list(options.flags)
    if "undefined" in options.sanitize:
        flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    return flags


def _kernel(kernel: Kernel, code: KernelCode, function: str) -> CKernel:
    arguments = arguments_of(kernel)
    counts = len(arguments.buffers), len(arguments.symbols)
    return CKernel(function, *counts, code.checks, kernel.name)
