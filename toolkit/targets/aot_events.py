"""Events of a compile that goes through AOTAutograd: its graphs, their kernels and calls.

The compiler of each graph is wrapped, nothing else. What it does inside stays unseen.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.codegen.watch_calls import CompiledGraph, watch_calls
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import KernelId, KernelRecord, Observer, Stage, StageRecord
from ctk.compiler.torch_compat import inductor
from ctk.toolkit.targets.reporting import interpreted, report

DISPATCH = "captured/autograd_dispatch"
"""Where an exception comes from that AOTAutograd raises itself, between the captured graph and
what it makes of it.
"""

GraphCompiler = Callable[..., Any]
"""`(gm, example_inputs) -> boxed callable`."""


@dataclass(slots=True)
class AotEvents:
    """Reports the graphs of one compile.

    Attributes:
        codegen: Name of the backend, in the ids of its kernels.
        observer: Gets the events.
        is_aot: Whether AOTAutograd was called.
        graphs: How many graphs were compiled so far, for each stage.
    """

    codegen: str
    observer: Observer
    is_aot: bool = False
    graphs: dict[Stage, int] = field(default_factory=dict[Stage, int])

    def joint(self, gm: GraphModule, inputs: Sequence[object]) -> None:
        """Report the joint graph of forward and backward, before it is split."""
        self.observer.on_stage(StageRecord("joint", copy_graph_module(gm), tuple(inputs)))

    def compiler(self, stage: Stage, compiler: GraphCompiler) -> GraphCompiler:
        """Return `compiler`, reporting the graphs of a stage and interpreting the vetoed ones."""

        def compile_graph(gm: GraphModule, inputs: Sequence[object], *rest: Any) -> Any:
            return self._compile(stage, gm, inputs, lambda: compiler(gm, inputs, *rest))

        return compile_graph

    def kernel_id(self, stage: Stage) -> KernelId:
        """Return the id of a stage's next kernel: `lowered/aot_eager:forward`, then `forward#2`."""
        run = self.graphs.get(stage, 0)
        self.graphs[stage] = run + 1
        return KernelId(self.codegen, stage, run)

    def _compile(
        self, stage: Stage, gm: GraphModule, inputs: Sequence[object], call: Callable[[], Any]
    ) -> Any:
        graph, kernel = copy_graph_module(gm), self.kernel_id(stage)
        self.observer.on_stage(StageRecord(stage, graph, tuple(inputs)))
        vetoed = not self.observer.allow_kernel(kernel)
        donated = inductor.donated_inputs() if stage == "backward" else frozenset[int]()
        started = time.perf_counter()
        try:
            compiled = interpreted(graph) if vetoed else call()
        except Exception as error:
            report(self.observer, error, stage="lowered", kernel=kernel, graph=graph)
            raise
        seconds = time.perf_counter() - started
        self.observer.on_kernel(KernelRecord(kernel, graph, vetoed=vetoed, seconds=seconds))
        made = CompiledGraph(self.observer, stage, graph, (kernel,), donated)
        return inductor.wrap_compiled(compiled, lambda call: watch_calls(call, made))
