"""The reference interpreter: a lowered graph in numpy, the ground truth of the code generators.

    program = lower(gm)
    outputs = run_program(gm, program, inputs)                          # each op in its own type
    exact = run_program(gm, program, inputs, precision="float64")       # every float in float64

Kernels run in numpy (`interpret_kernel.py`), library calls and attention in eager. Sizes are
bound from the inputs, or from the results of the library call that determines them. Memory out of
range, gathers out of range and operands of wrong types are errors that name kernel and node. With
`check=True` so are races between iterations, and reads of memory that was never written.

Source: tinygrad's Python backend, which runs the same operations as its compilers do.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate, map_arg

from ctk.compiler.fx.properties import is_mutating
from ctk.compiler.fx.types import value_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.lowering.attention import Attention
from ctk.compiler.lowering.interpret_kernel import run_kernel
from ctk.compiler.lowering.interpret_memory import WIDER, Memory, memory_of, unwritten
from ctk.compiler.lowering.ir import LibraryCall, Program, Step
from ctk.compiler.lowering.walk import arguments_of
from ctk.compiler.sizes.index import product
from ctk.compiler.sizes.size_guards import NotLowered, number_of, size_of


def run_program(
    gm: GraphModule,
    program: Program,
    inputs: Sequence[object],
    *,
    precision: str | None = None,
    check: bool = False,
) -> Any:
    """Run a lowered graph, and return its results as they stand at its output.

    Args:
        program: Fused or not, its memory planned or not. In float64 each buffer has its own memory.
        inputs: One value for each placeholder. Tensors that the graph writes are written.
        precision: "float64" computes and stores every float in float64; inputs are left alone then.
        check: Also raise if iterations depend on each other or read memory that was never written.

    Raises:
        InterpretError: A kernel breaks a rule of the IR.
    """
    run = _Run(gm, program, precision, check)
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, value in zip(placeholders, inputs, strict=True):
        run.define(node, value)
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            run.define(node, fetch(gm, node.target))
    for step in program.steps:
        run.step(step)
    (output,) = (node for node in gm.graph.nodes if node.op == "output")
    return map_arg(output.args[0], run.value)


@dataclass(slots=True)
class _Run:
    """A program that runs."""

    gm: GraphModule
    program: Program
    precision: str | None
    check: bool
    memory: dict[str, Memory] = field(default_factory=dict[str, Memory])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    values: dict[str, object] = field(default_factory=dict[str, object])

    def define(self, node: Node, value: Any) -> None:
        """Take the value of an input, a constant or a library call."""
        value = map_aggregate(value, self._widened) if self._wide else value
        self.values[node.name] = value
        self._bind(value_of(node), value)
        buffer = self.program.buffers.get(node.name)
        if buffer is not None and isinstance(value, Tensor):
            strides = tuple(number_of(stride, self.sizes) for stride in buffer.strides)
            self.memory[node.name] = memory_of(_with_strides(value, strides))

    def step(self, step: Step) -> None:
        if isinstance(step, LibraryCall):
            if is_mutating(step.node) or not self._is_view(step.node):
                self.define(step.node, self._called(step.node))
            return
        if isinstance(step, Attention):
            self._attend(step)
            return
        called = arguments_of(step)
        for name in called.buffers:
            self._allocate(name)
        run_kernel(step, self.memory, self.sizes, precision=self.precision, check=self.check)
        for name in called.written:
            before = self.program.buffers[name].memory
            if before and not self._wide:
                self.memory[before].lose()

    def _attend(self, kernel: Attention) -> None:
        """Run attention as eager does: its definition in torch is not written in loops."""
        (node,) = (each for each in self.gm.graph.nodes if each.name == kernel.nodes[0])
        results: Any = self._called(node)
        for user in node.users:
            view = self.program.views.get(user.name)
            if view is not None and view.buffer == user.name:
                strides = tuple(number_of(stride, self.sizes) for stride in view.strides)
                result = results[user.args[1]]
                self.memory[user.name] = memory_of(_with_strides(result, strides))

    def value(self, node: Node) -> Any:
        """Return the value of a node, a tensor as a view of its memory."""
        view = self.program.views.get(node.name)
        if view is None:
            return self.values[node.name]
        self._allocate(view.buffer)
        shape = [number_of(each, self.sizes) for each in view.shape]
        strides = [number_of(stride, self.sizes) for stride in view.strides]
        flat = self.memory[view.buffer].tensor
        first = flat.storage_offset() + number_of(view.offset, self.sizes)
        return torch.as_strided(flat, shape, strides, first)

    @property
    def _wide(self) -> bool:
        return self.precision == "float64"

    def _is_view(self, node: Node) -> bool:
        view = self.program.views.get(node.name)
        return view is not None and view.buffer != node.name and view.buffer in self.memory

    def _called(self, node: Node) -> object:
        args, kwargs = map_arg((node.args, node.kwargs), self.value)
        if self._wide:
            args, kwargs = map_aggregate((args, kwargs), self._widened)
        assert callable(node.target)
        return node.target(*args, **kwargs)

    def _widened(self, value: Any) -> Any:
        if isinstance(value, torch.dtype):
            return WIDER.get(value, value)
        if isinstance(value, Tensor) and value.dtype in WIDER:
            return value.detach().to(torch.float64, copy=True)
        return value

    def _allocate(self, name: str) -> None:
        buffer = self.program.buffers[name]
        if name in self.memory:
            return
        if buffer.memory and not self._wide:
            self._allocate(buffer.memory)
            self.memory[name] = self.memory[buffer.memory].taken(buffer.dtype, buffer.memory)
        else:
            count = number_of(product(buffer.shape), self.sizes)
            dtype = WIDER.get(buffer.dtype, buffer.dtype) if self._wide else buffer.dtype
            self.memory[name] = unwritten(count, dtype)

    def _bind(self, recorded: object, value: object) -> None:
        if isinstance(recorded, (list, tuple)) and isinstance(value, (list, tuple)):
            for each, actual in zip(recorded, value, strict=True):
                self._bind(each, actual)
        elif isinstance(recorded, Tensor) and isinstance(value, Tensor):
            for sizes in zip(recorded.shape, value.shape, strict=True):
                self._bind(*sizes)
        elif isinstance(recorded, torch.SymInt) and isinstance(value, int):
            try:
                name = str(size_of(recorded))
            except NotLowered:
                return  # an expression of others
            if name.isidentifier():
                self.sizes.setdefault(name, value)


def _with_strides(value: Tensor, strides: Sequence[int]) -> Tensor:
    pairs = zip(value.shape, value.stride(), strides, strict=True)
    if not value.numel() or all(size == 1 or own == wanted for size, own, wanted in pairs):
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype).copy_(value)
