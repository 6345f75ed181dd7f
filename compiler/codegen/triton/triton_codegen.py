"""The `triton` code generator: kernels for the GPU by Triton, everything else in eager.

A kernel has a variant for each layout (which depends on its sizes) and for each pattern of
addresses and sizes that are multiples of 16. The expected ones are compiled at once, in threads, as
Triton's compiler runs without Python's lock for most of its time; others on their first call.
"""

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from ctk.compiler.codegen.deferral import cancelled_on_error
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
from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.phases import phase
from ctk.compiler.runtime.stored_kernels import StoredKernel
from ctk.compiler.torch_compat.gpu import triton_launch

_THREADS = min(16, os.cpu_count() or 8)


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
    compiled: list[CompiledKernel] = []
    begun: list[Future[float]] = []
    with cancelled_on_error(begun):
        printed = _print_and_begin(made, begun, threads=1 if options.interpret else _THREADS)
        for variants, (source, seconds, own) in zip(made, printed, strict=True):
            ready = partial(_wait, own)
            if not setting.deferred or isinstance(variants.kernel, Attention):  # it may be refused
                seconds += ready()
            stored = partial(_stored, variants, options, setting)
            each = CompiledKernel(variants.kernel, source, launcher_of(variants), seconds, stored)
            compiled.append(replace(each, ready=ready, begun=own))
    return compiled


def _print_and_begin(
    made: Sequence[Variants], begun: list["Future[float]"], *, threads: int
) -> list[tuple[str, float, list["Future[float]"]]]:
    """Print kernels, and compile the parts of each in threads while the next ones are printed.

    Args:
        begun: Gets every compile that has begun, also if a later kernel cannot be printed.

    Returns:
        For each kernel the source of its parts, the seconds of printing, and its compiles.
    """
    printed: list[tuple[str, float, list[Future[float]]]] = []
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ctk-triton")
    try:
        for variants in made:
            started = time.perf_counter()
            sources: list[str] = []
            first = len(begun)
            with phase("lowered", "print kernels"):
                for part in variants.parts():
                    sources.append(part.source())
                    begun.append(pool.submit(_prepare, part))
            printed.append(("\n\n".join(sources), time.perf_counter() - started, begun[first:]))
    finally:
        pool.shutdown(wait=False)  # its threads end with the kernels
    return printed


def _prepare(variants: Variants) -> float:
    started = time.perf_counter()
    variants.prepare()
    return time.perf_counter() - started


def _wait(begun: Sequence["Future[float]"]) -> float:
    with phase("lowered", "Triton"):
        return sum(each.result() for each in begun)


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
