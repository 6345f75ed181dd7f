"""Run the kernels of a function's graph as C, each on memory that stands for its buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.c.c_codegen import COptions, compile_kernels
from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.lowering.ir import Buffer, Kernel, Program
from ctk.compiler.lowering.lower import lower
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.sizes.index import Index


def run_as_c(
    function: Callable[..., Any], *inputs: torch.Tensor, options: COptions | None = None
) -> list[torch.Tensor]:
    """Return what a function's kernels compute; each of its nodes must have kernels."""
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    program = lower(graph)
    kernels = [step for step in program.steps if isinstance(step, Kernel)]
    assert len(kernels) == len(program.steps), program.steps
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    memory = memory_of(program.buffers, dict(zip(names, inputs, strict=True)))
    launch_all(kernels, program.buffers, memory, options)
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    return [_result(program, memory, node.name) for node in output.all_input_nodes]


def launch_all(
    kernels: list[Kernel],
    buffers: Mapping[str, Buffer],
    memory: Mapping[str, torch.Tensor],
    options: COptions | None = None,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Compile kernels and launch each once."""
    for compiled in compile_kernels(kernels, buffers, options or COptions(), KernelSetting()):
        arguments = arguments_of(compiled.kernel)
        pointers = [memory[name].data_ptr() for name in arguments.buffers]
        compiled.launch(*pointers, *((sizes or {})[each.name] for each in arguments.symbols))


def memory_of(
    buffers: Mapping[str, Buffer], given: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return a tensor for each buffer; new ones hold NaN, or ones."""
    memory = dict(given)
    for name, buffer in buffers.items():
        if name not in memory:
            memory[name] = torch.empty_strided(
                _numbers(buffer.shape), _numbers(buffer.strides), dtype=buffer.dtype
            )
            floating = buffer.dtype.is_floating_point
            memory[name].fill_(float("nan") if floating else 1)
    return memory


def _result(program: Program, memory: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    view = program.views[name]
    shape, strides = _numbers(view.shape), _numbers(view.strides)
    return torch.as_strided(memory[view.buffer], shape, strides, view.offset.number)


def _numbers(sizes: tuple[Index, ...]) -> list[int]:
    return [size.number for size in sizes if size.number is not None]
