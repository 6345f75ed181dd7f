"""The `c` code generator: kernels in C by the system's compiler, everything else in eager."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from ctk.compiler.codegen.c.kernel_function import KernelCode
from ctk.compiler.codegen.c.kernel_printer import kernel_code
from ctk.compiler.codegen.c.libraries import load
from ctk.compiler.codegen.c.toolchain import command_with
from ctk.compiler.codegen.c.types import Names
from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.compilation import compile_with
from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator, KernelSetting
from ctk.compiler.errors import ArtifactError
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.options.choices import Options
from ctk.compiler.phases import phase
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
    kernels: Sequence[Kernel],
    buffers: Mapping[str, Buffer],
    options: COptions,
    setting: KernelSetting,
) -> list[CompiledKernel]:
    """Print, compile and load kernels; ahead of time, only print them for a package.

    Raises:
        CodegenUnsupported: There is no C compiler, or it does not take the code.
    """
    names = Names()
    codes: list[KernelCode] = []
    seconds: list[float] = []
    check_bounds = "address" in options.sanitize
    with phase("lowered", "print kernels"):
        for kernel in kernels:
            started = time.perf_counter()
            name = names.new(f"kernel_{kernel.name}")
            codes.append(kernel_code(kernel, buffers, name=name, check_bounds=check_bounds))
            seconds.append(time.perf_counter() - started)
    if setting.ahead_of_time:
        command_with(options.flags)  # refuses where there is no compiler
        return list(map(_printed, kernels, codes, seconds))
    compiled: list[CompiledKernel] = []
    with phase("lowered", "load kernels"):
        loaded = load(codes, flags_of(options))
    for kernel, code, found, printing in zip(kernels, codes, loaded, seconds, strict=True):
        made, library = _kernel(kernel, code, found.name), found.library
        run, taken = made.launcher(library), found.seconds + printing
        stored = partial(made.stored, f"{library.digest}.so", library.binary)
        compiled.append(CompiledKernel(kernel, code.text, run, taken, stored))
    return compiled


def _printed(kernel: Kernel, code: KernelCode, seconds: float) -> CompiledKernel:
    printed = PrintedKernel(code, _kernel(kernel, code, code.name))
    return CompiledKernel(kernel, code.text, _only_printed, seconds, _only_printed, printed)


def _only_printed(*given: int) -> Any:
    raise ArtifactError("this graph was compiled for a package (kernels.ahead_of_time)")


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


GENERATOR = Generator(
    "c",
    lambda _: frozenset(("cpu",)),
    compile_kernels,
    COptions(),
    attention_gradients=False,
)

CODEGEN = Codegen("c", compile_with(GENERATOR), suffix=".c")
