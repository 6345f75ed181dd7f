"""The `triton` code generator: kernels for the GPU by Triton, everything else in eager.

A kernel has a variant for each layout (which depends on its sizes) and for each pattern of
addresses and sizes that are multiples of 16. The expected ones are compiled at once, in threads, as
Triton's compiler runs without Python's lock for most of its time; others on their first call.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ctk.compiler.codegen.kernels import Codegen
from ctk.compiler.codegen.schedule.compilation import compile_with
from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator, KernelSetting
from ctk.compiler.codegen.triton.c_launcher_library import start_launcher
from ctk.compiler.codegen.triton.kernel_data import bounds_of, stored_kernel
from ctk.compiler.codegen.triton.source import require_atomics
from ctk.compiler.codegen.triton.variants import (
    TritonOptions,
    Variants,
    capability_of,
    launcher_of,
)
from ctk.compiler.errors import ArtifactError, CodegenUnsupported
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.runtime.stored_kernels import StoredKernel
from ctk.compiler.torch_compat.gpu import triton_launch

_THREADS = 8


def compile_kernels(
    kernels: Sequence[Kernel],
    buffers: Mapping[str, Buffer],
    options: TritonOptions,
    setting: KernelSetting,
) -> list[CompiledKernel]:
    """Return kernels that can be called, in the same order.

    Raises:
        CodegenUnsupported: Triton is not installed, or lacks something that a kernel needs.
    """
    try:
        triton_launch.require(interpret=options.interpret)
    except triton_launch.TritonMissing as error:
        raise CodegenUnsupported(str(error)) from None
    for kernel in kernels:
        require_atomics(kernel)
    if not (options.interpret or setting.ahead_of_time):
        start_launcher()
    made = [Variants(kernel, buffers, options, setting) for kernel in kernels]
    parts = [each.parts() for each in made]
    prepared = iter(_prepared([part for each in parts for part in each], options))
    compiled: list[CompiledKernel] = []
    for variants, own in zip(made, parts, strict=True):
        sources, seconds = zip(*(next(prepared) for _ in own), strict=True)
        source = "\n\n".join(sources)
        taken, stored = sum(seconds), partial(_stored, variants, options, setting)
        compiled.append(
            CompiledKernel(variants.kernel, source, launcher_of(variants), taken, stored)
        )
    return compiled


def _prepared(parts: Sequence[Variants], options: TritonOptions) -> list[tuple[str, float]]:
    if options.interpret or len(parts) < 2:
        return list(map(_prepare, parts))
    with ThreadPoolExecutor(min(_THREADS, len(parts))) as pool:
        return list(pool.map(_prepare, parts))


def _prepare(variants: Variants) -> tuple[str, float]:
    started = time.perf_counter()
    source = variants.prepare()
    return source, time.perf_counter() - started


def _stored(variants: Variants, options: TritonOptions, setting: KernelSetting) -> StoredKernel:
    if options.interpret:
        raise ArtifactError("kernels in Triton's interpreter cannot be stored")
    symbols = [symbol.name for symbol in variants.arguments.symbols]
    if symbols and not setting.ahead_of_time:
        raise ArtifactError("kernels whose sizes vary are compiled as sizes are met")
    bounds = bounds_of(symbols, setting.sizes, setting.largest)
    capability = capability_of(variants.kernel.device.index or 0)
    return stored_kernel(variants, bounds, capability)


def _devices(options: TritonOptions) -> frozenset[str]:
    return frozenset(("cpu",) if options.interpret else ("cuda",))


GENERATOR = Generator(
    "triton",
    _devices,
    compile_kernels,
    TritonOptions(),
    takes="tensor",
    min_outer=132,
    small=1 << 17,
)

CODEGEN = Codegen("triton", compile_with(GENERATOR))
