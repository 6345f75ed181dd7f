"""The state of one graph between its last pass and its compiled code: `Lowering`.

Below the passes these can be left out, each by its id:

    lowered/lower.aten.abs.default                 a lowering: the operator falls back to ATen
    lowered/fusion, its rewrites by number         fusions of two scheduler nodes (`fusions`)
    lowered/inductor:forward.cpp_fused_abs_0       a kernel: its nodes fall back (`kernel_parts`)
    lowered/buffer_reuse, lowered/vectorization    parts with an option (`switches`)

A vetoed kernel is known only when all are generated: then the graph is lowered once more, with the
nodes of that kernel in ATen, before anything is compiled.
"""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import ModuleType

from torch.fx import GraphModule, Node

from ctk.compiler.observe import PassId, PassRecord, Stage
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.inductor import inductor_lowering
from ctk.toolkit.targets.inductor.fusions import Fusions
from ctk.toolkit.targets.inductor.kernel_parts import KernelPart, Launch
from ctk.toolkit.targets.inductor.switches import switches_on


@dataclass(slots=True)
class Lowering:
    """One graph on its way to kernels.

    Attributes:
        stage: Stage of the graph.
        live: The graph that Inductor works on; its nodes are those of buffers.
        graph: A copy.
        numbering: That of the compile.
        fusions: The fusions of its scheduler nodes.
        asked: The passes that were asked about, with the answer.
        failed: The lowering that raised, and its node.
        parts: The kernels, in the order in which they were generated.
        launches: Their calls, in the order in which the module makes them.
        in_eager: Names of the nodes of vetoed kernels; they fall back to ATen.
        is_again: Whether the graph is being lowered once more, without those kernels.
        module: The compiled module.
        undo: Puts back the options that are off.
    """

    stage: Stage
    live: GraphModule
    graph: GraphModule
    numbering: Numbering
    fusions: Fusions
    asked: dict[str, tuple[PassId, bool]] = field(default_factory=dict[str, tuple[PassId, bool]])
    failed: tuple[PassId, str] | None = None
    parts: list[KernelPart] = field(default_factory=list[KernelPart])
    launches: list[Launch] = field(default_factory=list[Launch])
    in_eager: frozenset[str] = frozenset()
    is_again: bool = False
    module: ModuleType | None = None
    undo: ExitStack = field(default_factory=ExitStack)
    _refuses: bool = False

    def allows(self, name: str) -> bool:
        """Return whether the pass of that name may run on this graph; asked once."""
        if name not in self.asked:
            pass_id = self.numbering.pass_id("lowered", name)
            self.asked[name] = (pass_id, self.numbering.allow_pass(pass_id))
        return self.asked[name][1]

    def switch_off(self) -> None:
        """Ask about every part with an option, and switch the vetoed ones off."""
        off = {each.option: each.off for each in switches_on() if not self.allows(each.name)}
        if off:
            self.undo.enter_context(inductor_lowering.options_set(off))

    @contextmanager
    def at(self, node: Node) -> Generator[None]:
        """Lower one node: ask about its operator; remember it if the lowering raises."""
        operator = inductor_lowering.lowered_operator(node)
        outer, self._refuses = self._refuses, False
        if operator is not None:
            is_vetoed = not self.allows(f"lower.{operator}")
            self._refuses = is_vetoed or (self._is_mine(node) and node.name in self.in_eager)
        try:
            yield
        except Exception:
            if operator is not None and self.failed is None:
                self.failed = (self.asked[f"lower.{operator}"][0], node.name)
            raise
        finally:
            self._refuses = outer

    def falls_back(self) -> bool:
        """Return whether the node that is being lowered has to fall back to ATen."""
        return self._refuses

    def names(self, nodes: Sequence[Node]) -> tuple[str, ...]:
        """Return the names of those nodes that the graph has, in its order."""
        wanted = {node.name for node in nodes if self._is_mine(node)}
        return tuple(node.name for node in self.graph.graph.nodes if node.name in wanted)

    def _is_mine(self, node: Node) -> bool:
        return node.graph is self.live.graph

    def records(self) -> list[PassRecord]:
        """Return the record of every pass that was asked about, the fusions last."""
        made = [
            PassRecord(pass_id, "exact", self.graph, self.graph, vetoed=not allowed)
            for pass_id, allowed in self.asked.values()
        ]
        fusion = self.fusions.record(self.graph)
        return [*made, fusion] if fusion is not None else made

    def find_vetoed_nodes(self) -> frozenset[str]:
        """Return the nodes of the kernels that were vetoed."""
        return frozenset(name for part in self.parts if part.vetoed for name in part.nodes)

    def again(self) -> None:
        """Begin to lower the graph once more, without the kernels that were vetoed."""
        self.in_eager, self.is_again = self.find_vetoed_nodes(), True
        self.fusions.is_open = False
        self.launches.clear()


def begin_lowering(
    stage: Stage, live: GraphModule, graph: GraphModule, numbering: Numbering
) -> Lowering:
    """Return the lowering of a graph that begins now; `Lowering.undo` is to be closed after it."""

    def find_names(nodes: Sequence[Node]) -> tuple[str, ...]:
        return lowering.names(nodes)

    lowering = Lowering(stage, live, graph, numbering, Fusions(numbering, find_names))
    lowering.switch_off()
    return lowering
