"""Compile kernels to one shared object with the system's C compiler, and load it.

The compiler is that of `CC`, else `cc`, `gcc` or `clang`. Threads are those of torch: the object is
linked to the OpenMP library that torch has loaded, so there is one pool, and
`torch.set_num_threads` holds for it. Nothing is left on disk.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
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
from ctk.compiler.codegen.c.types import Names
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.arguments import arguments_of
from ctk.compiler.lowering.ir import Buffer, Kernel

COMPILERS = ("cc", "gcc", "clang")

_FLAGS = (
    "-O3", "-march=native", "-std=gnu11", "-fPIC", "-shared", "-fopenmp", "-w", "-fwrapv",
    "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off",
)  # fmt: skip


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
    library = _compiled(file_text(codes), options)
    launches = [_launcher(library, k, c) for k, c in zip(kernels, codes, strict=True)]
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


def find_compiler() -> str:
    """Return the path of the C compiler.

    Raises:
        CodegenUnsupported: There is none.
    """
    asked = os.environ.get("CC")
    names = (asked, *COMPILERS) if asked else COMPILERS
    for name in names:
        found = shutil.which(name)
        if found:
            return found
    raise CodegenUnsupported(f"no C compiler found (looked for {', '.join(names)})")


def _compiled(text: str, options: COptions) -> ctypes.CDLL:
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="ctk-c-") as folder:
        source, target = Path(folder, "kernels.c"), Path(folder, "kernels.so")
        source.write_text(text, encoding="utf-8")
        command = [compiler, *_FLAGS, *options.flags, str(source), "-o", str(target), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CodegenUnsupported(
                f"{compiler} does not take the generated C (exit {done.returncode}):\n{done.stderr}"
            )
        return ctypes.CDLL(str(target))


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
