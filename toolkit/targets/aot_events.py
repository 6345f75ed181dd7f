"""Report the compile of a backend that goes through AOTAutograd: its graphs, kernels and calls.

Only the compiler of each graph is wrapped; steps inside that compiler stay unseen.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.codegen.watch_calls import WatchedGraph, watch_calls
from ctk.compiler.dispatch.decompositions import Decompositions
from ctk.compiler.dispatch.fake_kernels import FakeKernels
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import ErrorRecord, KernelRecord, Observer, Stage, StageRecord
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.toolkit.targets.reporting import interpret_graph, report

GraphCompiler = Callable[..., Any]
"""`(gm, example_inputs) -> boxed callable`."""


@dataclass(slots=True)
class AotEvents:
    """Reports the graphs of one compile.

    Attributes:
        codegen: Name of the backend, in the ids of its kernels.
        is_aot: Whether AOTAutograd was called.
        has_graphs: Whether it has handed a graph to a compiler.
        numbering: Gives the ids of the kernels: `lowered/aot_eager:forward`, then `forward#2`.
        decompositions: The decompositions of the trace, reported with the first graph.
    """

    codegen: str
    observer: Observer
    is_aot: bool = False
    has_graphs: bool = False
    numbering: Numbering = field(default_factory=Numbering)
    decompositions: Decompositions = field(init=False)
    fake_kernels: FakeKernels = field(init=False)

    def __post_init__(self) -> None:
        self.decompositions = Decompositions(Numbering(self.observer))
        self.fake_kernels = FakeKernels(Numbering(self.observer))

    def joint(self, gm: GraphModule, inputs: Sequence[object]) -> None:
        """Report the joint graph of forward and backward, before it is split."""
        self.decompositions.report()
        self.observer.on_stage(StageRecord("joint", copy_graph_module(gm), tuple(inputs)))

    def compiler(self, stage: Stage, compiler: GraphCompiler) -> GraphCompiler:
        """Return `compiler`, reporting the graphs of a stage and interpreting the vetoed ones."""

        def compile_graph(gm: GraphModule, inputs: Sequence[object], *rest: Any) -> Any:
            # A backward graph may be compiled at its first call, outside of Dynamo's compile.
            with inductor.compile_lock():
                return self._compile(stage, gm, inputs, lambda: compiler(gm, inputs, *rest))

        return compile_graph

    def _compile(
        self, stage: Stage, gm: GraphModule, inputs: Sequence[object], call: Callable[[], Any]
    ) -> Any:
        self.has_graphs = True
        self.decompositions.report()
        graph, kernel = copy_graph_module(gm), self.numbering.kernel_id(self.codegen, stage)
        self.observer.on_stage(StageRecord(stage, graph, tuple(inputs)))
        vetoed = not self.observer.allow_kernel(kernel)
        donated = inductor.donated_inputs() if stage == "backward" else frozenset[int]()
        started = time.perf_counter()
        try:
            compiled = interpret_graph(graph) if vetoed else call()
        except Exception as error:
            report(self.observer, ErrorRecord(error, "lowered", kernel=kernel, graph=graph))
            raise
        seconds = time.perf_counter() - started
        self.observer.on_kernel(KernelRecord(kernel, graph, vetoed=vetoed, seconds=seconds))
        made = WatchedGraph(self.observer, stage, graph, (kernel,), donated)
        return inductor.wrap_compiled(compiled, lambda call: watch_calls(call, made))
