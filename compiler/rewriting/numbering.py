"""The numbering of one compile: pass runs, rewrites and kernels get ids, and are vetoed by them.

The n-th rewrite of a compile has the same number in every run, because a vetoed rewrite keeps its
number. So "the first 12 rewrites" (fuel) and "all but the 12th" (a veto) mean the same in
two compiles. Built-in passes, users' plain functions and the Inductor adapter share this class.

    numbering = Numbering(observer)
    pass_id = numbering.pass_id("joint", "fold")           # joint/fold, the next time joint/fold#2
    rewrite_id = numbering.rewrite_id(pass_id, "a -> b")   # number 1 of the compile, 1 of the pass
    numbering.allow_rewrite(rewrite_id)
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import GraphModule, Node

from ctk.compiler.errors import VerifyError
from ctk.compiler.fx.copy import snapshot_graph
from ctk.compiler.fx.excerpt import excerpt
from ctk.compiler.observe import KernelId, Observer, PassId, RewriteId, RewriteRecord, Stage
from ctk.compiler.options.config import Config, leaves_out


@dataclass(slots=True)
class Numbering:
    """Numbers the pass runs, rewrites and kernels of one compile, and allows or vetoes them.

    Attributes:
        config: `disable` vetoes passes, `fuel` all rewrites with a larger number.
        used: Number of rewrites so far.
    """

    observer: Observer | None = None
    config: Config = field(default_factory=Config)
    used: int = 0
    _runs: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    _rewrites: Counter[PassId] = field(default_factory=Counter[PassId])

    def pass_id(self, stage: Stage, name: str) -> PassId:
        """Return the id of the next run of a pass in a stage."""
        return PassId(stage, name, self._count(stage, name))

    def kernel_id(self, codegen: str, name: str) -> KernelId:
        """Return the id of the next kernel of that name."""
        return KernelId(codegen, name, self._count("lowered", f"{codegen}:{name}"))

    def rewrite_id(self, pass_id: PassId, rule: str) -> RewriteId:
        """Return the id of the next rewrite, with its number in the compile and in its pass."""
        self.used += 1
        self._rewrites[pass_id] += 1
        return RewriteId(self.used, pass_id, self._rewrites[pass_id], rule)

    def allow_pass(self, pass_id: PassId) -> bool:
        names = {pass_id.name, f"{pass_id.stage}/{pass_id.name}", str(pass_id)}
        is_pass = pass_id.stage not in ("operator", "dispatch")
        if leaves_out(self.config.disable, names, is_pass=is_pass):
            return False
        return self.observer is None or self.observer.allow_pass(pass_id)

    def allow_rewrite(self, rewrite_id: RewriteId) -> bool:
        if self.config.fuel is not None and rewrite_id.number > self.config.fuel:
            return False
        return self.observer is None or self.observer.allow_rewrite(rewrite_id)

    def allow_kernel(self, kernel_id: KernelId) -> bool:
        return self.observer is None or self.observer.allow_kernel(kernel_id)

    def _count(self, stage: str, name: str) -> int:
        """Count a name; return how often it occurred before."""
        self._runs[(stage, name)] += 1
        return self._runs[(stage, name)] - 1


NodeState = tuple[object, Any, Any]
"""The definition of a node: its target, args and kwargs."""


@dataclass(slots=True)
class PassRun:
    """One run of a pass over a root graph; shared by the rewriters of its sub-graphs.

    Attributes:
        earlier: The passes that ran before in this stage; errors name them.
        rewrites: The rewrites made and vetoed so far, for an observer.
        notes: The remarks of the pass on nodes, for an observer.
        states: The earlier definitions of the nodes of each changed graph.
        regions: The nodes that enter the regions of autocast around each graph.
        typed: The definition of each inserted node, its value, and the values of its operands, from
            which its own was computed.
    """

    root: GraphModule
    id: PassId
    numbering: Numbering
    earlier: tuple[PassId, ...] = ()
    changed: bool = False
    rewrites: list[RewriteRecord] = field(default_factory=list[RewriteRecord])
    notes: list[str] = field(default_factory=list[str])
    states: dict[GraphModule, dict[Node, NodeState]] = field(
        default_factory=dict[GraphModule, dict[Node, NodeState]]
    )
    regions: dict[GraphModule, list[Node]] = field(default_factory=dict[GraphModule, list[Node]])
    typed: dict[Node, tuple[NodeState, Sequence[object]]] = field(
        default_factory=dict[Node, "tuple[NodeState, Sequence[object]]"]
    )

    def next_rewrite(self, rule: str) -> RewriteId:
        """Return the id of the next rewrite of this run."""
        return self.numbering.rewrite_id(self.id, rule)

    def contract_error(
        self,
        fault: str,
        seen: str,
        advice: str,
        *,
        module: GraphModule,
        node: str | None = None,
    ) -> VerifyError:
        """Return the error of a pass that broke the pass contract.

        Args:
            fault: Predicate of a sentence whose subject is the pass.
            seen: Values seen, for a line of their own; "" for none.
        """
        earlier = ", ".join(map(str, self.earlier)) or "none"
        lines = (
            f"pass {self.id} {fault}",
            f"  {seen}" if seen else "",
            excerpt(module.graph, node),
            f"Passes that ran before it in this stage: {earlier}.",
            f"Pass author: {advice}.",
        )
        return VerifyError("\n".join(line for line in lines if line), node=node)

    def prepare(self, module: GraphModule) -> None:
        """Keep the definitions of a graph's nodes for the verifier, before its first change."""
        self.changed = True
        if module not in self.states:
            self.states[module] = {n: (n.target, n.args, n.kwargs) for n in module.graph.nodes}

    def note(self, text: str) -> None:
        """Keep a remark of the pass on a node for the observer."""
        if self.numbering.observer is not None:
            self.notes.append(text)

    def record(self, rewrite_id: RewriteId, nodes: Sequence[str], *, vetoed: bool = False) -> None:
        """Keep a rewrite for the observer, with a copy of the graph after it if one is wanted."""
        observer = self.numbering.observer
        if observer is None:
            return
        keep = observer.keep_rewrites and not vetoed
        after = snapshot_graph(self.root) if keep else None
        self.rewrites.append(RewriteRecord(rewrite_id, tuple(nodes), vetoed, after))
