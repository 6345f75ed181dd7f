"""The contract of code generators, and of kernels that can be vetoed, logged and checked.

A generator that compiles a whole graph at once is `one_kernel` of its function. A generator of many
kernels asks its `KernelContext` for each, in the same order in every compile:

    def compile_graph(gm, example_inputs, context):
        for node in ...:
            kernel = context.kernel(node.name, nodes=(node.name,))      # forward.add
            part = extract(gm, kernel.nodes)
            run = part.module if kernel.vetoed else my_function(node)
            run = kernel.made(run, source=lambda: my_text(node), results=part.results)
        return as_boxed(...)                                            # calls them in order

With no observer `kernel` allows everything, and `made` returns `run` itself.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule

from ctk.compiler.codegen.base import BoxedCallable
from ctk.compiler.codegen.eager_nodes import eager_compile
from ctk.compiler.codegen.watch_calls import Returned, watch_kernel
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.observe import KernelId, KernelRecord, Observer, Stage
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.process.process_state import outside_dispatch_modes

Run = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Codegen:
    """A code generator.

    Attributes:
        name: Its name in `Config.codegen` and `Config.fallback`.
        compile: Compiles an aten-level graph and leaves it unchanged. The example inputs are one
            value per placeholder, real or fake. Raises `CodegenUnsupported` when it cannot take the
            graph; its kernels so far are forgotten then.
    """

    name: str
    compile: Callable[[GraphModule, Sequence[object], "KernelContext"], BoxedCallable]
    suffix: str = ".py"


@dataclass(slots=True)
class ObservedKernel:
    """One kernel: the decision of its context, and the code of the generator.

    Attributes:
        id: Unique in the compile.
        vetoed: The generator must run these nodes in eager.
        seconds: Time to make it; None until it is made.
    """

    id: KernelId
    nodes: tuple[str, ...] = ()
    vetoed: bool = False
    seconds: float | None = None
    source: Callable[[], str] | None = None
    ir: Callable[[], str] | None = None
    _observer: Observer | None = field(default=None, repr=False)
    _returned: Returned = field(default_factory=Returned, repr=False)
    _started: float = field(default_factory=time.perf_counter, repr=False)

    def made(
        self,
        run: Run,
        *,
        source: Callable[[], str] | None = None,
        results: Sequence[str] = (),
        seconds: float | None = None,
        ir: Callable[[], str] | None = None,
    ) -> Run:
        """Record the code of the kernel (if vetoed, of its nodes), and return a function to call.

        Args:
            results: Names of the nodes whose values `run` returns; empty for a whole graph.

        Returns:
            `run`; with an observer, wrapped to record its values and exceptions.
        """
        self.seconds = time.perf_counter() - self._started if seconds is None else seconds
        self.source, self.ir = source, ir
        if self._observer is None or not results:
            return run
        return watch_kernel(run, self.id, tuple(results), self._observer, self._returned)


class KernelContext:
    """The context of one graph and generator: the stage, and the kernels that it may make."""

    def __init__(self, codegen: Codegen, stage: Stage, numbering: Numbering) -> None:
        self.stage: Stage = stage
        self.kernels: list[ObservedKernel] = []
        self.returned = Returned()
        self.codegen = codegen
        self.numbering = numbering
        self._copy: GraphModule | None = None

    def copy_of(self, graph: GraphModule) -> GraphModule:
        """Return the copy of the graph that all records of this compile hold."""
        self._copy = self._copy or copy_graph_module(graph)
        return self._copy

    def kernel(self, name: str = "", nodes: Sequence[str] = ()) -> ObservedKernel:
        """Return the next kernel (without nodes, the whole graph); the observer may have vetoed it.

        The order of the calls numbers kernels of one name, so it must not depend on vetoes.
        """
        full = f"{self.stage}.{name}" if name else self.stage
        kernel_id = self.numbering.kernel_id(self.codegen.name, full)
        vetoed = not self.numbering.allow_kernel(kernel_id)
        observer = self.numbering.observer
        kernel = ObservedKernel(
            kernel_id, tuple(nodes), vetoed, _observer=observer, _returned=self.returned
        )
        self.kernels.append(kernel)
        return kernel

    def at_hand(self) -> tuple[KernelId, str | None]:
        """Return the kernel that is being made, and its node if it has just one.

        With none at hand, an id for the graph as a whole.
        """
        last = self.kernels[-1] if self.kernels else None
        if last is not None and last.seconds is None:
            return last.id, last.nodes[0] if len(last.nodes) == 1 else None
        return KernelId(self.codegen.name, self.stage), None

    def records(self, graph: GraphModule, reason: str | None) -> list[KernelRecord]:
        """Return the records of the kernels, for an observer."""
        return [
            KernelRecord(
                kernel.id,
                graph,
                kernel.nodes,
                source=_text(kernel.source),
                ir=_text(kernel.ir),
                suffix=self.codegen.suffix,
                reason=reason,
                vetoed=kernel.vetoed,
                seconds=kernel.seconds,
            )
            for kernel in self.kernels
            if kernel.seconds is not None
        ]


def one_kernel(
    compile_graph: Callable[[GraphModule, Sequence[object]], BoxedCallable],
) -> Callable[[GraphModule, Sequence[object], KernelContext], BoxedCallable]:
    """Return the `Codegen.compile` of a generator that makes one kernel of a whole graph."""

    def compile_whole(
        gm: GraphModule, example_inputs: Sequence[object], context: KernelContext
    ) -> BoxedCallable:
        kernel = context.kernel()
        compiled = eager_compile(gm) if kernel.vetoed else compile_graph(gm, example_inputs)
        kernel.made(compiled, source=compiled.ctk_source)
        return compiled

    return compile_whole


def _text(source: Callable[[], str] | None) -> str | None:
    """Print generated code; the fake mode of the compile must not see the constants."""
    if source is None:
        return None
    with outside_dispatch_modes():
        return source()
