"""From a graph to a boxed callable: lower, fuse, plan memory, compile kernels, assemble."""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.codegen.base import BoxedCallable, as_boxed, guard_count, no_data
from ctk.compiler.codegen.deferral import can_defer, cancelled_on_error, defer
from ctk.compiler.codegen.eager_nodes import constants_data, eager_compile
from ctk.compiler.codegen.kernels import KernelContext, ObservedKernel
from ctk.compiler.codegen.packing import with_packed_weights
from ctk.compiler.codegen.schedule.assembly import Assembly, outside_symbols
from ctk.compiler.codegen.schedule.cuda_graphs import with_cuda_graphs
from ctk.compiler.codegen.schedule.generator import (
    CompiledKernel,
    Generator,
    KernelOptions,
    setting_of,
    with_config,
)
from ctk.compiler.codegen.schedule.inner_graphs import InnerGraphs
from ctk.compiler.codegen.schedule.passes import Passes
from ctk.compiler.codegen.schedule.units import Unit, nodes_of, units_of
from ctk.compiler.error_place import place
from ctk.compiler.errors import CodegenUnsupported
from ctk.compiler.fx.extract import extract, fill_between
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.lowering.fuse import FusionOptions, fuse
from ctk.compiler.lowering.ir import LibraryCall, Program
from ctk.compiler.lowering.lower import LoweringOptions, lower
from ctk.compiler.lowering.memory import plan_memory
from ctk.compiler.lowering.text import kernel_text, summary
from ctk.compiler.observe import ErrorRecord, first_line
from ctk.compiler.phases import phase
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.runtime.compiled_graph import CompiledGraph
from ctk.compiler.runtime.python_code import PythonCode

log = logging.getLogger("ctk.codegen")

THREAD = "ctk-kernels"
"""The name of the threads. Python joins them at its end, so that no files are left."""

_THREADS = 8

Make = Callable[[], Sequence[CompiledKernel]]


def compile_with(
    generator: Generator,
) -> Callable[[GraphModule, Sequence[object], KernelContext], BoxedCallable]:
    """Return the `Codegen.compile` of a generator of kernels."""

    def compile_graph(
        gm: GraphModule, example_inputs: Sequence[object], context: KernelContext
    ) -> BoxedCallable:
        config = context.numbering.config
        kernel_options = with_config(KernelOptions(), config)
        own_options = with_config(generator.options, config)
        with phase("lowered", "pack weights"):
            packed = with_packed_weights(gm)
        compilation = _Compilation(packed, generator, context, kernel_options, own_options)
        compilation.require_device()
        program = compilation.lower(gm)
        return compilation.compile(program, example_inputs)

    return compile_graph


@dataclass(frozen=True, slots=True)
class _Compilation:
    """One compile of one graph, the constant weights of which are packed.

    Attributes:
        sources: The code of its kernels, with those of the graphs inside.
    """

    gm: GraphModule
    generator: Generator
    context: KernelContext
    options: KernelOptions
    own_options: Any
    sources: list[str] = field(default_factory=list[str])

    def require_device(self) -> None:
        """Raise `CodegenUnsupported` for a graph without values on a device of the generator."""
        devices = self.generator.devices(self.own_options)
        tensors = [tensor_of(node) for node in self.gm.graph.nodes]
        places = {tensor.device.type for tensor in tensors if tensor is not None}
        if places and places.isdisjoint(devices):
            raise CodegenUnsupported(
                f"its kernels run on {', '.join(sorted(devices))}, and all of the graph is on "
                f"{', '.join(sorted(places))}"
            )

    def lower(self, announced: GraphModule) -> Program:
        """Return the program, fused and planned; records hold a copy of `announced`."""
        is_observed = self.context.numbering.observer is not None
        graph = self.context.copy_of(announced) if is_observed else self.gm
        passes = Passes(self.context.numbering, graph)
        devices = self.generator.devices(self.own_options)
        accumulate = getattr(torch, self.options.accumulate)
        lowering = LoweringOptions(
            self.options.exact,
            accumulate,
            devices=devices,
            attention_gradients=self.generator.attention_gradients,
        )
        min_outer, small = self.generator.min_outer, self.generator.small
        limits = FusionOptions(exact=self.options.exact, min_outer=min_outer, small=small)
        lowered = passes.run("lower", lambda allow: lower(self.gm, lowering, allow))
        fused = passes.run_planned("fuse", lambda allow: fuse(lowered, allow, limits))
        program = passes.run_planned("plan_memory", lambda allow: plan_memory(fused, allow))
        if log.isEnabledFor(logging.DEBUG):
            log.debug("graph %s: %s", self.context.stage, summary(program))
        return program

    def compile(self, program: Program, example_inputs: Sequence[object]) -> BoxedCallable:
        """Compile the kernels of a program, and put them together with its library calls."""
        steps = units_of(program)
        inner = InnerGraphs(self.gm, self._compile_inner)
        observed: dict[Unit, ObservedKernel] = {}
        calls: dict[Node, ObservedKernel] = {}
        for step in steps:
            if isinstance(step, Unit):
                observed[step] = self.context.kernel(step.name, nodes_of(step, self.gm))
            elif inner.called_by(step.node):
                calls[step.node] = self.context.kernel(step.node.name, (step.node.name,))
        units = [unit for unit, kernel in observed.items() if not kernel.vetoed]
        kernels = [kernel for unit in units for kernel in unit.kernels]
        is_observed = self.context.numbering.observer is not None
        is_later = self.options.background and not is_observed and bool(kernels)
        is_deferred = can_defer() and not is_later
        setting = replace(setting_of(self.options, example_inputs), deferred=is_deferred)

        def make() -> Sequence[CompiledKernel]:
            if not kernels:
                return []
            buffers, options = program.buffers, self.own_options
            return self.generator.compile_kernels(kernels, buffers, options, setting)

        compiled = [] if is_later else make()
        begun = [future for each in compiled for future in each.begun]
        with cancelled_on_error(begun):
            assembly = Assembly(self.gm, program, {kernel: n for n, kernel in enumerate(kernels)})
            for step in steps:
                if isinstance(step, LibraryCall):
                    self._add_call(assembly, step.node, inner, calls.get(step.node))
                elif observed[step].vetoed:
                    self._add_eager(assembly, step, observed[step])
                elif is_observed:
                    self._add_observed(assembly, step, observed[step], compiled)
                else:
                    assembly.add_unit(step)
            with phase("lowered", "schedule"):
                boxed = self._box(assembly, compiled, inner, make if is_later else None)
        if is_deferred and compiled:
            defer(partial(self._wait, compiled), begun)
        return boxed

    def _wait(self, compiled: Sequence[CompiledKernel]) -> None:
        """Wait for deferred kernels; an error has the place of the graph."""
        with phase("lowered", f"wait for kernels:{self.context.stage}"):
            try:
                for each in compiled:
                    each.ready()
            except Exception as error:
                place(ErrorRecord(error, "lowered", graph=self.gm), None)
                raise

    def _box(
        self,
        assembly: Assembly,
        compiled: Sequence[CompiledKernel],
        inner: InnerGraphs,
        make_later: Make | None,
    ) -> BoxedCallable:
        """Return a boxed callable; with `make_later`, a thread compiles its kernels."""
        (output,) = self.gm.graph.find_nodes(op="output")
        schedule = assembly.result(output)
        constants = inner.constants()
        constants |= {
            name: fetch(self.gm, name)
            for name in schedule.constants.values()
            if name not in constants
        }
        code = PythonCode(schedule, "forward", constants, self.generator.takes)

        def data() -> CompiledGraph:
            codes = [each.code for each in compiled if each.code is not None]
            with ThreadPoolExecutor(_THREADS) as pool:  # `stored` compiles a kernel that is not yet
                stored = [] if codes else list(pool.map(lambda each: each.stored(), compiled))
            values = constants_data(self.gm, schedule, inner.made)
            return CompiledGraph(schedule, values, self.generator.name, stored, codes)

        self.sources.extend(each.source for each in compiled)
        self.sources.extend(each for sources in inner.sources.values() for each in sources)
        run = guard_count(code.function, len(schedule.inputs))
        boxed = as_boxed(run, lambda: code.text, data, code)
        if self.options.cuda_graphs:
            boxed = with_cuda_graphs(boxed, self.gm, self.context)
        if make_later is None:
            code.bind([each.launch for each in compiled])
            return boxed

        def work() -> None:
            code.bind([each.launch for each in make_later()])

        return _in_background(self.context.stage, work, boxed, eager_compile(self.gm))

    def _compile_inner(
        self, graph: GraphModule, inputs: Sequence[object]
    ) -> tuple[BoxedCallable, Sequence[str]]:
        """Compile a graph that an operator calls; to an observer that call is one kernel.

        Raises:
            CodegenUnsupported: No generator of kernels takes it, or a package is written, which has
                no place for its kernels.
        """
        if self.options.ahead_of_time:
            raise CodegenUnsupported("a package holds the kernels of the whole graph only")
        numbering = Numbering(config=replace(self.context.numbering.config, fuel=None))
        context = KernelContext(self.context.codegen, self.context.stage, numbering)
        inner = replace(self, gm=with_packed_weights(graph), context=context, sources=[])
        compiled = inner.compile(inner.lower(graph), inputs)
        return compiled, inner.sources

    def _add_call(
        self, assembly: Assembly, node: Node, inner: InnerGraphs, observed: ObservedKernel | None
    ) -> None:
        """Add a library call; with compiled graphs if it has some, and they are not vetoed."""
        if observed is None:
            assembly.add(node)
            return
        graphs = inner.called_by(node)
        sources = [each for name in dict.fromkeys(graphs.values()) for each in inner.sources[name]]

        def run(*args: Any) -> list[Any]:
            return [cast("Any", node.target)(*args)]

        made = observed.made(
            run,
            source=None if observed.vetoed else lambda: "\n\n".join(sources),
            results=(node.name,),
        )
        is_observed = self.context.numbering.observer is not None
        assembly.add_caller(node, {} if observed.vetoed else graphs, made if is_observed else None)

    def _add_observed(
        self,
        assembly: Assembly,
        unit: Unit,
        observed: ObservedKernel,
        compiled: Sequence[CompiledKernel],
    ) -> None:
        """Add the kernels of a unit as one function, whose calls the observer sees."""
        part = assembly.part_of(unit)
        name, symbols = unit.name.replace(".", "__"), outside_symbols(part)
        code = PythonCode(part, name, {}, self.generator.takes, is_boxed=False, symbols=symbols)
        code.bind([each.launch for each in compiled])
        own = [compiled[assembly.numbers[kernel]] for kernel in unit.kernels]
        source = "\n\n".join(each.source for each in own)
        run = observed.made(
            code.function,
            source=lambda: source,
            results=tuple(node for node, _ in assembly.results_of(unit)),
            seconds=sum(each.seconds for each in own),
            ir=lambda: "\n\n".join(map(kernel_text, unit.kernels)),
        )
        assembly.add_function(unit, part, run)

    def _add_eager(self, assembly: Assembly, unit: Unit, observed: ObservedKernel) -> None:
        part = extract(self.gm, fill_between(self.gm, observed.nodes), unit.stores)

        def run(*values: Any) -> Any:
            return part.module(*values)

        assembly.add_eager(part, observed.made(run, results=part.results))


def _in_background(
    stage: str, make: Callable[[], None], ready: BoxedCallable, meanwhile: BoxedCallable
) -> BoxedCallable:
    """Return a callable that runs `meanwhile` until `make` has returned, then `ready`.

    `make` is called once, in a thread. If it fails, which is logged once, `meanwhile` stays.
    """
    current = meanwhile

    def work() -> None:
        nonlocal current
        try:
            make()
        except Exception as error:
            reason = f"{type(error).__name__}: {first_line(error)}"
            log.warning("graph %s: no kernels: %s; it stays in eager", stage, reason)
        else:
            current = ready

    def run(args: list[Any]) -> Sequence[object]:
        return current(args)

    threading.Thread(target=work, name=THREAD).start()
    later = "kernels.background=true compiles kernels later than a graph is stored"
    return as_boxed(run, ready.ctk_source, lambda: no_data(later))
