"""Kernels of the loop IR in Triton's interpreter, each held to the reference interpreter."""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.codegen.triton.triton_codegen import compile_kernels
from ctk.compiler.codegen.triton.variants import TritonOptions
from ctk.compiler.lowering.fuse import fuse
from ctk.compiler.lowering.interpret_kernel import run_kernel
from ctk.compiler.lowering.interpret_memory import memory_of, unwritten
from ctk.compiler.lowering.ir import Buffer, Kernel, Program
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.sizes.size_guards import number_of

Memories = dict[str, Tensor]

INTERPRETED = pytest.mark.skipif(
    find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1",
    reason="no triton; or there is a GPU, and kernels are compiled (make test-gpu)",
)


def fused(function: Callable, *inputs: Tensor, symbolic: bool = False) -> Program:
    """Return the fused program of a function."""
    mode = "symbolic" if symbolic else "real"
    return fuse(lower(make_fx(function, tracing_mode=mode)(*inputs)), lambda *_: True)


def kernels_of(program: Program) -> list[Kernel]:
    steps = [step for step in program.steps if isinstance(step, Kernel)]
    libraries = [s for s in program.steps if not isinstance(s, Kernel)]
    unexpected = [s.why for s in libraries if s.why != "it is a view"]
    assert not unexpected, unexpected
    return steps


def check(function: Callable, *inputs: Tensor, symbolic: bool = False, 
          options: TritonOptions | None = None, **tolerances: float) -> list[str]:  # fmt: skip
    """Hold each kernel of a function to the reference; return the sources."""
    program = fused(function, *inputs, symbolic=symbolic)
    named = [name for name, buffer in program.buffers.items() if buffer.role == "input"]
    memory = {n: memory_of(x).tensor for n, x in zip(named, inputs, strict=True)}
    sizes = {
        str(size): number
        for n, x in zip(named, inputs, strict=True)
        for size, number in zip(program.buffers[n].shape, x.shape, strict=True)
    }
    kernels = kernels_of(program)
    return check_kernels(kernels, program.buffers, memory, sizes, options, **tolerances)


def check_kernels(kernels: Sequence[Kernel], buffers: Mapping[str, Buffer], memory: Memories,
                  sizes: Mapping[str, int], options: TritonOptions | None = None,
                  **tolerances: float) -> list[str]:  # fmt: skip
    """Run kernels one after the other, by Triton and by the reference, on the same memory."""
    made = compile_kernels(
        kernels, buffers, options or TritonOptions(interpret=True), KernelSetting()
    )
    for compiled in made:
        arguments = arguments_of(compiled.kernel)
        for name in arguments.buffers:
            if name not in memory:
                memory[name] = unwritten(_extent(buffers[name], sizes), buffers[name].dtype).tensor
        own = {name: memory[name].clone() for name in arguments.buffers}
        numbers = [sizes[each.name] for each in arguments.symbols]
        compiled.launch(*own.values(), *numbers)
        run_kernel(compiled.kernel, {n: memory_of(t) for n, t in memory.items()}, sizes)
        for name in arguments.written:
            torch.testing.assert_close(
                own[name], memory[name], equal_nan=True, **_tolerances(own[name], tolerances)
            )
    return [compiled.source for compiled in made]


def _extent(buffer: Buffer, sizes: Mapping[str, int]) -> int:
    shape = [number_of(size, sizes) for size in buffer.shape]
    strides = [number_of(stride, sizes) for stride in buffer.strides]
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _tolerances(tensor: Tensor, given: Mapping[str, float]) -> Mapping[str, float]:
    """Return a few units in the last place: sums have another order than the reference's."""
    if given or not tensor.dtype.is_floating_point:
        return given
    eps = torch.finfo(tensor.dtype).eps
    return {"rtol": 8 * eps, "atol": 8 * eps}
