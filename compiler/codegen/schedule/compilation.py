"""From a graph to a boxed callable: lower, fuse, plan memory, compile kernels, put together.

Lowering, fusion and memory planning are passes of the stage `lowered`: their rewrites (a node that
becomes a kernel, two kernels that become one, a buffer that takes the memory of another) have
numbers, may be vetoed and are announced, though they change the program and not the graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, check_count
from ctk.compiler.codegen.eager_nodes import constants_data, eager_compile
from ctk.compiler.codegen.kernels import KernelContext, ObservedKernel
from ctk.compiler.codegen.packing import with_packed_weights
from ctk.compiler.codegen.schedule.assembly import Assembly, outside_symbols
from ctk.compiler.codegen.schedule.background import in_background
from ctk.compiler.codegen.schedule.cuda_graphs import with_cuda_graphs
from ctk.compiler.codegen.schedule.generator import CompiledKernel, Generator, KernelSetting
from ctk.compiler.codegen.schedule.options import KernelOptions, with_config
from ctk.compiler.codegen.schedule.passes import Passes
from ctk.compiler.codegen.schedule.summary import summary
from ctk.compiler.codegen.schedule.units import Unit, units_of
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.extract import closed, extract
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.lowering.fuse import FusionOptions, fuse
from ctk.compiler.lowering.ir import Kernel, LibraryCall, Program
from ctk.compiler.lowering.lower import LoweringOptions, lower
from ctk.compiler.lowering.memory import plan_memory
from ctk.compiler.lowering.text import kernel_text
from ctk.compiler.options.choices import Options
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.python_code import PythonCode
from ctk.compiler.runtime.steps import Schedule
from ctk.compiler.torch_compat.aot import exported
from ctk.compiler.torch_compat.fake import fake_tensors as fake

log = logging.getLogger("ctk.codegen")

_THREADS = 8


def scheduled(
    generator: Generator,
) -> Callable[[GraphModule, Sequence[object], KernelContext], BoxedCallable]:
    """Return the `Codegen.compile` of a generator of kernels."""

    def compile_graph(
        gm: GraphModule, example_inputs: Sequence[object], context: KernelContext
    ) -> BoxedCallable:
        packed = with_packed_weights(gm)
        return _Schedule(packed, gm, example_inputs, generator, context).compile()

    return compile_graph


@dataclass(slots=True)
class _Schedule:
    """One graph on its way to a callable.

    Attributes:
        gm: The graph, its constant weights packed.
        announced: The graph as observers know it.
        inputs: Its example inputs.
        generator: Makes the kernels.
        context: Of the compile.
    """

    gm: GraphModule
    announced: GraphModule
    inputs: Sequence[object]
    generator: Generator
    context: KernelContext

    def compile(self) -> BoxedCallable:
        self.require_device()
        program = self.lowered()
        if log.isEnabledFor(logging.DEBUG):
            log.debug("graph %s: %s", self.context.stage, summary(program))
        steps = units_of(program)
        watched = {
            step: self.context.kernel(step.name, self.nodes_of(step))
            for step in steps
            if isinstance(step, Unit)
        }
        units = [unit for unit, kernel in watched.items() if not kernel.vetoed]
        kernels = [kernel for unit in units for kernel in unit.kernels]
        make = self.maker(program, kernels)
        is_watched = self.context.numbering.observer is not None
        is_later = self.options().background and not is_watched and bool(kernels)
        compiled = [] if is_later else make()
        assembly = Assembly(self.gm, program, {kernel: n for n, kernel in enumerate(kernels)})
        for step in steps:
            if isinstance(step, LibraryCall):
                assembly.add(step.node)
            elif watched[step].vetoed:
                self.add_eager(assembly, step, watched[step])
            elif is_watched:
                self.add_watched(assembly, step, watched[step], compiled)
            else:
                assembly.add_unit(step)
        (output,) = self.gm.graph.find_nodes(op="output")
        schedule, bind = self.callable_of(assembly.result(output), compiled)
        if self.options().cuda_graphs:
            schedule = with_cuda_graphs(schedule, self.gm, self.context)
        if not is_later:
            bind([each.launch for each in compiled])
            return schedule

        def make_later() -> None:
            bind([each.launch for each in make()])

        return in_background(self.context.stage, make_later, schedule, eager_compile(self.gm))

    def callable_of(
        self, schedule: Schedule, compiled: Sequence[CompiledKernel]
    ) -> tuple[BoxedCallable, Callable[[Sequence[Callable[..., None]]], None]]:
        """Return a schedule as a boxed callable, and what gives it its kernels."""
        constants = {name: fetch(self.gm, name) for name in schedule.constants.values()}
        code = PythonCode(schedule, "forward", constants, self.generator.takes)
        forward, count = code.function, len(schedule.inputs)
        name = self.generator.name

        def run(args: list[Any]) -> Sequence[object]:
            if len(args) != count:
                check_count(args, count)
            return forward(args)

        def data() -> CompiledGraph:
            codes = [each.code for each in compiled if each.code is not None]
            with ThreadPoolExecutor(_THREADS) as pool:  # what is not compiled yet is compiled
                stored = [] if codes else list(pool.map(lambda each: each.stored(), compiled))
            return CompiledGraph(schedule, constants_data(self.gm, schedule), name, stored, codes)

        return as_boxed(run, lambda: code.text, data), code.bind

    def options(self) -> KernelOptions:
        """Return the options of all generators in this compile."""
        return with_config(KernelOptions(), self.context.numbering.config)

    def own_options(self) -> Options:
        """Return the options of the generator in this compile."""
        return with_config(self.generator.options, self.context.numbering.config)

    def require_device(self) -> None:
        """Raise `CodegenUnsupported` for a graph of which nothing is where kernels run."""
        devices = self.generator.devices(self.own_options())
        tensors = [tensor_of(node) for node in self.gm.graph.nodes]
        places = {each.device.type for each in tensors if each is not None}
        if places and places.isdisjoint(devices):
            raise CodegenUnsupported(
                f"its kernels run on {', '.join(sorted(devices))}, and all of the graph is on "
                f"{', '.join(sorted(places))}"
            )

    def lowered(self) -> Program:
        """Return the program, fused and planned."""
        options = self.options()
        accumulate = getattr(torch, options.accumulate)
        lowering = LoweringOptions(
            options.exact, accumulate, devices=self.generator.devices(self.own_options())
        )
        limits = FusionOptions(
            exact=options.exact, min_outer=self.generator.min_outer, small=self.generator.small
        )
        graph = self.context.copy_of(self.announced) if self.context.numbering.observer else self.gm
        passes = Passes(self.context.numbering, graph)
        lowered = passes.run("lower", lambda allow: lower(self.gm, lowering, allow))
        fused = passes.planned("fuse", lambda allow: fuse(lowered, allow, limits))
        return passes.planned("plan_memory", lambda allow: plan_memory(fused, allow))

    def nodes_of(self, unit: Unit) -> tuple[str, ...]:
        """Return the nodes of a unit in the order of the graph, results that they pick too."""
        inside = set(unit.nodes)
        picked = (
            user.name
            for node in self.gm.graph.nodes
            if node.name in inside and isinstance(node.meta.get("val"), (list, tuple))
            for user in node.users
        )
        inside.update(picked)
        return tuple(node.name for node in self.gm.graph.nodes if node.name in inside)

    def maker(
        self, program: Program, kernels: Sequence[Kernel]
    ) -> Callable[[], Sequence[CompiledKernel]]:
        """Return what compiles kernels, in any thread."""
        chosen = self.options()
        mode = fake.mode_of(self.inputs)
        ranges = exported.symbol_ranges(mode) if mode is not None else {}
        largest = {name: high for name, (_, high) in ranges.items()}
        setting = KernelSetting(chosen.exact, _hints(self.inputs), largest, chosen.ahead_of_time)
        options = self.own_options()

        def make() -> Sequence[CompiledKernel]:
            if not kernels:
                return []
            return self.generator.compile_kernels(kernels, program.buffers, options, setting)

        return make

    def add_watched(
        self,
        assembly: Assembly,
        unit: Unit,
        watched: ObservedKernel,
        compiled: Sequence[CompiledKernel],
    ) -> None:
        """Add the kernels of a unit as one function, which somebody watches."""
        part = assembly.part_of(unit)
        name, symbols = unit.name.replace(".", "__"), outside_symbols(part)
        code = PythonCode(part, name, {}, self.generator.takes, is_boxed=False, symbols=symbols)
        code.bind([each.launch for each in compiled])
        own = [compiled[assembly.numbers[kernel]] for kernel in unit.kernels]
        source = "\n\n".join(each.source for each in own)
        run = watched.made(
            code.function,
            source=lambda: source,
            results=tuple(node for node, _ in assembly.results_of(unit)),
            seconds=sum(each.seconds for each in own),
            ir=lambda: "\n\n".join(map(kernel_text, unit.kernels)),
        )
        assembly.add_function(unit, part, run)

    def add_eager(self, assembly: Assembly, unit: Unit, watched: ObservedKernel) -> None:
        part = extract(self.gm, closed(self.gm, watched.nodes), unit.stores)

        def run(*values: Any) -> Any:
            return part.module(*values)

        assembly.add_eager(part, watched.made(run, results=part.results))


def _hints(inputs: Sequence[object]) -> dict[str, int]:
    """Return the values that the symbols among the sizes of inputs had in the traced call."""
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    sizes = [size for tensor in tensors for size in (*tensor.shape, *tensor.stride())]
    found: dict[str, int] = {}
    for size in (*inputs, *sizes):
        if isinstance(size, torch.SymInt):
            name, hint = fake.symbol_and_hint(size)
            if isinstance(hint, int):
                found[name] = hint
    return found
