"""Kernels of the loop IR compiled by Triton, and called with tensors.

    compiled = compile_kernels(program_kernels, program.buffers, TritonOptions())
    compiled[0].launch(out, x, 4096)           # in the order of `arguments_of(kernel)`

A kernel has a variant for each layout (which depends on its sizes) and for each pattern of
addresses and sizes that are multiples of 16. Those that are expected are compiled at once, in
threads, as Triton's compiler runs without Python's lock for most of its time; others when they are
met.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ctk.compiler.codegen.schedule.generator import CompiledKernel
from ctk.compiler.codegen.triton.options import TritonOptions
from ctk.compiler.codegen.triton.source import require_atomics
from ctk.compiler.codegen.triton.variants import Variants
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.lowering.ir import Buffer, Kernel
from ctk.compiler.torch_compat import triton_launch

_THREADS = 8


def compile_kernels(
    kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], options: TritonOptions
) -> list[CompiledKernel]:
    """Return kernels that can be called, in the same order.

    Raises:
        CodegenUnsupported: Triton is not installed, or a kernel has what it cannot do.
    """
    try:
        triton_launch.require(interpret=options.interpret)
    except triton_launch.TritonMissing as error:
        raise CodegenUnsupported(str(error)) from None
    for kernel in kernels:
        require_atomics(kernel)
    if options.interpret or len(kernels) < 2:
        return [_compiled(kernel, buffers, options) for kernel in kernels]
    with ThreadPoolExecutor(min(_THREADS, len(kernels))) as pool:
        return list(pool.map(lambda kernel: _compiled(kernel, buffers, options), kernels))


def _compiled(
    kernel: Kernel, buffers: Mapping[str, Buffer], options: TritonOptions
) -> CompiledKernel:
    started = time.perf_counter()
    variants = Variants(kernel, buffers, options)
    source = variants.prepare()
    return CompiledKernel(kernel, source, variants.launch, time.perf_counter() - started)
