"""The `triton` code generator: kernels for the GPU by Triton, everything else in eager."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.compilation import compile_with
from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator, KernelSetting
from ctk.compiler.codegen.triton.kernel_options import TritonOptions
from ctk.compiler.codegen.triton.launch import compile_kernels
from ctk.compiler.lowering.ir import Buffer, Kernel


def _compile(
    kernels: Sequence[Kernel],
    buffers: Mapping[str, Buffer],
    options: TritonOptions,
    setting: KernelSetting,
) -> Sequence[CompiledKernel]:
    chosen = replace(
        options,
        exact=setting.exact,
        sizes=setting.sizes,
        largest=setting.largest,
        ahead_of_time=setting.ahead_of_time,
    )
    return compile_kernels(kernels, buffers, chosen)


def _devices(options: TritonOptions) -> frozenset[str]:
    return frozenset(("cpu",) if options.interpret else ("cuda",))


GENERATOR = Generator(
    "triton", _devices, _compile, TritonOptions(), takes="tensor", min_outer=132, small=1 << 17
)

CODEGEN = Codegen("triton", compile_with(GENERATOR))
