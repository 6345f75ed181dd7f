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
    parts = [each.parts() for each in made]
    printed = [_print(own) for own in parts]
    compiled: list[CompiledKernel] = []
    all_begun = _begin([part for own in parts for part in own], options)
    rest = iter(all_begun)
    with cancelled_on_error(all_begun):
        for variants, own, (source, seconds) in zip(made, parts, printed, strict=True):
            begun = [next(rest) for _ in own]
            ready = partial(_wait, begun)
            if not setting.deferred or isinstance(variants.kernel, Attention):  # it may be refused
                seconds += ready()
            stored = partial(_stored, variants, options, setting)
            each = CompiledKernel(variants.kernel, source, launcher_of(variants), seconds, stored)
            compiled.append(replace(each, ready=ready, begun=begun))
    return compiled


def _print(parts: Sequence[Variants]) -> tuple[str, float]:
    """Return the source of a kernel's parts, and the seconds."""
    started = time.perf_counter()
    with phase("lowered", "print kernels"):
        source = "\n\n".join(part.source() for part in parts)
    return source, time.perf_counter() - started


def _begin(parts: Sequence[Variants], options: TritonOptions) -> list["Future[float]"]:
    """Begin to compile kernels in threads, which end with them; return the seconds of each."""
    if not parts:
        return []
    threads = 1 if options.interpret else min(_THREADS, len(parts))
    pool = ThreadPoolExecutor(threads, thread_name_prefix="ctk-triton")
    begun = [pool.submit(_prepare, part) for part in parts]
    pool.shutdown(wait=False)
    return begun


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
