"""The state of one graph between its last pass and its compiled code: `Lowering`.

Below the passes these can be left out, each by its id:

    lowered/lower.aten.abs.default                 a lowering: the operator falls back to ATen
    lowered/fusion, its rewrites by number         fusions of two scheduler nodes (`Fusions`)
    lowered/inductor:forward.cpp_fused_abs_0       a kernel: its nodes fall back (`kernel_parts`)
    lowered/buffer_reuse, lowered/vectorization    parts with an option (`SWITCHES`)

A vetoed kernel is known only when all are generated: then the graph is lowered once more, with the
nodes of that kernel in ATen, before anything is compiled.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.observe import PassId, PassRecord, RewriteId, RewriteRecord, Stage
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.inductor import inductor_lowering
from ctk.toolkit.targets.inductor.kernel_parts import KernelPart, Launch


@dataclass(frozen=True, slots=True)
class Switch:
    """A part of Inductor below the passes that has an option, as the pass `lowered/NAME`.

    The observer is asked right before a graph is lowered; a vetoed part is off until the graph is
    compiled. A part that is off already, or unknown to this torch, is skipped.

    Attributes:
        name: That of the option, unless that is obscure.
        off: Its value without it.
        trace: Text that shows in generated code where this acted; "" when nothing does.
        is_memory: Whether it decides which values share memory.
    """

    name: str
    option: str
    off: object
    trace: str = ""
    is_memory: bool = False


SWITCHES = (
    Switch("buffer_reuse", "allow_buffer_reuse", off=False, trace="# reuse", is_memory=True),
    Switch("inplace_buffers", "inplace_buffers", off=False, trace="in_out_ptr", is_memory=True),
    Switch("vectorization", "cpp.simdlen", off=1, trace="at::vec"),
    Switch("padding", "comprehensive_padding", off=False),
    Switch("output_strides", "keep_output_stride", off=False),
    Switch("layout_optimization", "layout_optimization", off=False),
    Switch("reorder_for_peak_memory", "reorder_for_peak_memory", off=False),
    Switch("loop_ordering", "loop_ordering_after_fusion", off=False),
    Switch("split_reductions", "split_reductions", off=False),
    Switch("persistent_reductions", "triton.persistent_reductions", off=False, trace="tl."),
    Switch("mix_order_reductions", "triton.mix_order_reduction", off=False, trace="tl."),
    Switch("nested_reductions", "triton.nested_reduction", off=False, trace="tl."),
    Switch("scalar_accumulators", "triton.scalar_accumulators", off=False, trace="tl."),
)


def switches_on() -> Iterator[Switch]:
    """Yield the parts that are on, in order."""
    values = inductor.option_values()
    for switch in SWITCHES:
        if values.get(switch.option, switch.off) != switch.off:
            yield switch


Pair = tuple[frozenset[str], frozenset[str]]
"""The names of two scheduler nodes."""


@dataclass(slots=True)
class Fusions:
    """The fusions of one graph: rewrites of the pass `lowered/fusion`, made or vetoed.

    A scheduler node is a loop nest or a library call. A fusion gets its number when Inductor is
    about to make it. A refused one stays refused, also as part of a larger one: after `op0 + op1`
    was vetoed, neither `op0 + op1` in the next round nor `op0 op2 + op1` is made, and neither has a
    number.

    Loops that code generation writes into one function without fusing them are not seen.

    Attributes:
        named: Names of those of the given nodes that the graph has, in its order.
        is_open: Whether fusions get numbers; when the graph is lowered once more, they do not.
    """

    numbering: Numbering
    named: Callable[[tuple[Node, ...]], tuple[str, ...]]
    is_open: bool = True
    _id: PassId | None = None
    _allowed: bool = True
    _depth: int = 0
    _scouting: bool = False
    _refused: list[Pair] = field(default_factory=list[Pair])
    _pending: dict[Pair, RewriteId] = field(default_factory=dict[Pair, RewriteId])
    _records: list[RewriteRecord] = field(default_factory=list[RewriteRecord])

    def can_fuse(self, first: Any, second: Any, original: Callable[[], bool]) -> bool:
        """Answer for Inductor whether two nodes may be fused."""
        if self._depth:  # a node of several asks about its parts
            return original()
        pair = (inductor_lowering.names(first), inductor_lowering.names(second))
        if not self._may_fuse() or self._is_refused(pair):
            return False
        self._depth += 1
        try:
            allowed = original()
        finally:
            self._depth -= 1
        if not allowed or self._scouting or not self.is_open or pair in self._pending:
            return allowed
        return self._ask(pair, first, second)

    def candidates(self, original: Callable[[], Any]) -> Any:
        """Let Inductor look for pairs: nothing is fused, so nothing gets a number."""
        self._scouting = True
        try:
            return original()
        finally:
            self._scouting = False

    def record_made(self, first: Any, second: Any) -> None:
        """Record a fusion that was made."""
        pair = (inductor_lowering.names(first), inductor_lowering.names(second))
        rewrite = self._pending.pop(pair, None)
        if rewrite is not None:
            self._records.append(RewriteRecord(rewrite, self._nodes(first, second)))

    def record(self, graph: GraphModule) -> PassRecord | None:
        """Return the record of the pass; None when it was never asked about."""
        if self._id is None:
            return None
        made = tuple(sorted(self._records, key=lambda record: record.id.number))
        return PassRecord(self._id, "exact", graph, graph, made, vetoed=not self._allowed)

    def _may_fuse(self) -> bool:
        if self._id is None:
            self._id = self.numbering.pass_id("lowered", "fusion")
            self._allowed = self.numbering.allow_pass(self._id)
        return self._allowed

    def _is_refused(self, pair: Pair) -> bool:
        (a, b) = pair
        return any((a & c and b & d) or (a & d and b & c) for c, d in self._refused)

    def _ask(self, pair: Pair, first: Any, second: Any) -> bool:
        assert self._id is not None, "asked about by _may_fuse"
        rule = f"{'_'.join(sorted(pair[0]))} + {'_'.join(sorted(pair[1]))}"
        rewrite = self.numbering.rewrite_id(self._id, rule)
        if self.numbering.allow_rewrite(rewrite):
            self._pending[pair] = rewrite
            return True
        self._refused.append(pair)
        self._records.append(RewriteRecord(rewrite, self._nodes(first, second), vetoed=True))
        return False

    def _nodes(self, first: Any, second: Any) -> tuple[str, ...]:
        return self.named(inductor_lowering.origins([first, second]))


@dataclass(slots=True)
class Lowering:
    """One graph on its way to kernels; begins with the parts that are switched off.

    Attributes:
        live: The graph that Inductor works on; its nodes are those of buffers.
        graph: A copy.
        asked: The passes that were asked about, with the answer.
        failed: The lowering that raised, and its node.
        parts: The kernels, in the order in which they were generated.
        launches: Their calls, in the order in which the module makes them.
        in_eager: Names of the nodes of vetoed kernels; they fall back to ATen.
        is_again: Whether the graph is being lowered once more, without those kernels.
        undo: Puts back the options that are off; to be closed after the lowering.
    """

    stage: Stage
    live: GraphModule
    graph: GraphModule
    numbering: Numbering
    fusions: Fusions = field(init=False)
    asked: dict[str, tuple[PassId, bool]] = field(default_factory=dict[str, tuple[PassId, bool]])
    failed: tuple[PassId, str] | None = None
    parts: list[KernelPart] = field(default_factory=list[KernelPart])
    launches: list[Launch] = field(default_factory=list[Launch])
    in_eager: frozenset[str] = frozenset()
    is_again: bool = False
    module: ModuleType | None = None
    undo: ExitStack = field(default_factory=ExitStack)
    _refuses: bool = False

    def __post_init__(self) -> None:
        self.fusions = Fusions(self.numbering, self.names)
        self._switch_off()

    def allows(self, name: str) -> bool:
        """Return whether the pass of that name may run on this graph; asked once."""
        if name not in self.asked:
            pass_id = self.numbering.pass_id("lowered", name)
            self.asked[name] = (pass_id, self.numbering.allow_pass(pass_id))
        return self.asked[name][1]

    def _switch_off(self) -> None:
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
            with inductor_lowering.falling_back(node) if self._refuses else nullcontext():
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
