"""The `c` code generator: kernels in C by the system's compiler, everything else in eager."""

from collections.abc import Mapping, Sequence

from ctk.compiler.codegen.c.build import COptions, compile_kernels, print_kernels
from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.compilation import compile_with
from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator, KernelSetting
from ctk.compiler.lowering.ir import Buffer, Kernel


def _compile(
    kernels: Sequence[Kernel],
    buffers: Mapping[str, Buffer],
    options: COptions,
    setting: KernelSetting,
) -> Sequence[CompiledKernel]:
    if setting.ahead_of_time:
        return print_kernels(kernels, buffers, options)
    return compile_kernels(kernels, buffers, options)


GENERATOR = Generator("c", lambda _: frozenset(("cpu",)), _compile, COptions())

CODEGEN = Codegen("c", compile_with(GENERATOR), suffix=".c")
