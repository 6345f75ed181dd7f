"""The part of a compile log below the passes: lowerings, fusions, kernels, options of one graph."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from torch.fx import GraphModule, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.properties import base_of, is_mutating, is_view
from ctk.compiler.observe import KernelRecord, PassRecord, RewriteRecord
from ctk.compiler.usercode.closure import reachable
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.compile_log.kernel_source import excerpt
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.targets.inductor.lowering import SWITCHES

_LOWER = "lowered/lower."
_FUSIONS = ("fusion", "fuse")
"""Passes that fuse: of Inductor, and of our own generators."""


@dataclass(frozen=True, slots=True)
class Scene:
    """One graph below the passes.

    Attributes:
        passes: Everything that its lowering asked the observer about.
        kernels: Its kernels: parts, and the whole.
        part: The wrong kernel; None if it is not known.
        wrong: Name of the first wrong node, or of the failing one; "" if unknown.
        memory: Values in memory were overwritten while they were still needed.
        refused: The lowering of the failing operator raised.
    """

    graph: GraphModule
    passes: tuple[PassRecord, ...]
    kernels: tuple[KernelRecord, ...]
    part: KernelRecord | None
    wrong: str
    failed: bool
    memory: bool
    refused: bool

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The suspected nodes, in the order of the questions."""
        all_nodes = [node for node in self.graph.graph.nodes if node.op == "call_function"]
        inside = set(self.part.nodes) if self.part is not None else {n.name for n in all_nodes}
        last = [n for n in all_nodes if n.name == self.wrong]
        sources = reachable(last, lambda n: [o for o in n.all_input_nodes if o.name in inside])
        wanted = {n.name for n in sources} or inside
        found = [n for n in all_nodes if n.name in wanted]
        return tuple(reversed(found) if self.failed else found)

    @property
    def lowerings(self) -> dict[str, str]:
        """The suspected lowerings, operator to pass: constants late, views last.

        A constant that falls back hides its value from a lowering that cannot inline it.
        """
        known = self._known

        def late(node: Node) -> tuple[bool, bool]:
            return not self.failed and is_view(node), not node.all_input_nodes

        operators = (str(node.target) for node in sorted(self.nodes, key=late))
        return {operator: known[operator] for operator in operators if operator in known}

    @property
    def _known(self) -> dict[str, str]:
        return {operator_of(str(p.id)): str(p.id) for p in self.passes if not p.vetoed}

    @property
    def writers(self) -> list[Node]:
        """The nodes that write to memory."""
        return [node for node in self.graph.graph.nodes if is_mutating(node)]

    def lowering_of(self, node: Node) -> str | None:
        return self._known.get(str(node.target))

    @property
    def excerpt(self) -> str:
        return excerpt(self.part, self.wrong) if self.part is not None else ""

    def nodes_of(self, operator: str) -> tuple[str, ...]:
        return tuple(n.name for n in self.nodes if str(n.target) == operator)

    def fusions(self, among: Iterable[str]) -> list[RewriteRecord]:
        """Return the fusions of any of the named nodes."""
        return self.rewrites(_FUSIONS, among)

    def rewrites(self, names: Collection[str], among: Iterable[str]) -> list[RewriteRecord]:
        """Return the rewrites by the named passes of any of the named nodes."""
        wanted, mine = set(among), (p for p in self.passes if p.id.name in names)
        made = (r for p in mine for r in p.rewrites if not r.vetoed)
        return [rewrite for rewrite in made if wanted & set(rewrite.nodes)]

    @property
    def is_of_loops(self) -> bool:
        """Whether every change of the graph is a numbered rewrite: a generator of ctk."""
        return any(p.id.name == "lower" for p in self.passes)

    @property
    def sharings(self) -> list[RewriteRecord]:
        """All buffers that reuse memory: the writer is not the reader that shows an error."""
        every = [node.name for node in self.graph.graph.nodes]
        return self.rewrites(("plan_memory",), every)

    def switches(self, *, memory: bool, of_part: bool = False) -> list[str]:
        """Return the options that left a trace in generated code, as passes.

        Args:
            memory: Return the options that decide which values share memory, or the others.
            of_part: Look at the code of the guilty kernel only.
        """
        kernels = self.kernels if not of_part else (self.part,) if self.part is not None else ()
        code = "\n".join(kernel.source or "" for kernel in kernels)
        traces = {s.name: s.trace for s in SWITCHES if s.is_memory == memory}
        named = ((p, p.id.name) for p in self.passes if not p.vetoed)
        return [str(p.id) for p, name in named if name in traces and traces[name] in code]


def scene_of(culprit: Culprit, log: CompileLog) -> Scene | None:
    """Return the graph around a guilty kernel; None if the target does not log below the passes."""
    records = [k for k in log.kernels() if str(k.id) in culprit.veto.kernels]
    asked = [p for p in log.passes() if p.id.stage == "lowered"]
    if not asked:
        return None
    graph = records[0].graph if records else asked[-1].before
    mine = tuple(p for p in asked if p.before is graph)
    kernels = tuple(k for k in log.kernels() if k.graph is graph)
    wrong = culprit.nodes[0] if culprit.nodes else ""
    part = next((k for k in records if k.nodes), None) if len(records) == 1 else None
    memory = _is_overwritten(part, log) if part is not None else bool(kernels)
    refused = any(each.node == wrong and each.pass_id is not None for each in log.errors())
    return Scene(graph, mine, kernels, part, wrong, not kernels, memory, refused) if mine else None


def _is_overwritten(part: KernelRecord, log: CompileLog) -> bool:
    """Return whether a kernel read another value than the kernel before it wrote."""
    for call in log.calls():
        written: dict[str, object] = {}
        for kernel in call.kernels:
            changed = any(n in written and written[n] is not v for n, v in kernel.read.items())
            if kernel.id == part.id and changed:
                return True
            written.update(kernel.values)
    return False


def written_bases(writer: Node) -> set[Node]:
    """Return the nodes whose memory a node writes to."""
    return {base_of(written) for written in mutated_arguments(writer)}


def operator_of(where: str) -> str:
    """Return the operator of a lowering's id; "" for another pass."""
    return where.removeprefix(_LOWER).partition("#")[0] if where.startswith(_LOWER) else ""
