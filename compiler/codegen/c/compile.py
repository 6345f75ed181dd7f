"""Compile kernels to shared objects with the system's C compiler, load them, launch them.

The kernels of a graph are one file; those of a large graph are as many as there are processors, and
are compiled at the same time. Nothing is left on disk.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from ctk.compiler.choices import Options
from ctk.compiler.codegen.c.faults import FAULT_TYPE, NOTE_FAULT, fault_error
from ctk.compiler.codegen.c.functions import PREAMBLE, functions_for
from ctk.compiler.codegen.c.print import KernelCode, kernel_code
from ctk.compiler.codegen.c.toolchain import compile_files
from ctk.compiler.codegen.c.types import Names
from ctk.compiler.lowering.arguments import arguments_of
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.process_name import process_name

_LARGE = 6000
"""More letters of C than this take so long to compile that it pays to do it in several files."""


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
class CompiledKernel:
    """A kernel that can be launched.

    Attributes:
        kernel: What it computes.
        source: Its C function.
        launch: Runs it; gets the addresses of its buffers, then its sizes, as `arguments_of` has
            them.
        seconds: Its share of the time that printing and compiling took.
    """

    kernel: Kernel
    source: str
    launch: Callable[..., None]
    seconds: float


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
    started = time.perf_counter()
    names = Names()
    codes = [
        kernel_code(
            kernel, buffers, name=names.new(f"kernel_{kernel.name}"),
            check_bounds="address" in options.sanitize,
        )
        for kernel in kernels
    ]  # fmt: skip
    libraries = load(codes, options)
    launches = [
        _launcher(libraries[code.name], kernel, code)
        for kernel, code in zip(kernels, codes, strict=True)
    ]
    seconds = time.perf_counter() - started
    whole = sum(len(code.text) for code in codes)
    return [
        CompiledKernel(kernel, code.text, launch, seconds * len(code.text) / whole)
        for kernel, code, launch in zip(kernels, codes, launches, strict=True)
    ]


def file_text(codes: Sequence[KernelCode]) -> str:
    """Return the file of some kernels: types, the functions that they call, the kernels."""
    texts = [code.text for code in codes]
    parts = [PREAMBLE]
    if any(code.checks for code in codes):
        parts += [FAULT_TYPE, NOTE_FAULT]
    return "\n\n".join((*parts, *functions_for(texts), *texts)) + "\n"


def load(codes: Sequence[KernelCode], options: COptions) -> dict[str, ctypes.CDLL]:
    """Compile and load functions, and return the library of each by its name.

    Raises:
        CodegenUnsupported: There is no C compiler, or it does not take the code.
    """
    groups = _groups(codes)
    flags = list(options.flags)
    if "undefined" in options.sanitize:
        flags += ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
    with tempfile.TemporaryDirectory(prefix=f"ctk-c-{process_name()}-") as folder:
        sources = [Path(folder, f"kernels_{number}.c") for number in range(len(groups))]
        for source, group in zip(sources, groups, strict=True):
            source.write_text(file_text(group), encoding="utf-8")
        named = [[code.name for code in group] for group in groups]
        targets = compile_files(sources, flags, named)
        loaded = [ctypes.CDLL(str(target)) for target in targets]
    return {
        code.name: library for library, group in zip(loaded, groups, strict=True) for code in group
    }


def _groups(codes: Sequence[KernelCode]) -> list[list[KernelCode]]:
    """Return the functions of each file, about as much text in each."""
    total = sum(len(code.text) for code in codes)
    count = min(os.cpu_count() or 1, len(codes), 1 + total // _LARGE)
    groups: list[list[KernelCode]] = [[] for _ in range(count)]
    before = 0
    for code in codes:
        groups[min(before * count // max(total, 1), count - 1)].append(code)
        before += len(code.text)
    return [group for group in groups if group]


def _launcher(library: ctypes.CDLL, kernel: Kernel, code: KernelCode) -> Callable[..., None]:
    arguments = arguments_of(kernel)
    function = library[code.name]
    pointers, sizes = len(arguments.buffers), len(arguments.symbols)
    function.argtypes = [ctypes.c_void_p] * pointers + [ctypes.c_int64] * sizes
    function.restype = ctypes.c_int64 if code.checks else None
    if not code.checks:
        return function

    def launch(*given: int) -> None:
        if function(*given):
            fault = (ctypes.c_int64 * 3)()
            library.read_last_fault(fault)
            check, index, size = fault
            raise fault_error(code.checks[check - 1], kernel.name, index, size)

    return launch
