"""The numbering of one compile: what happens in it gets an id, and is allowed or vetoed by it.

The n-th rewrite of a compile has the same number in every run, whatever is vetoed: a vetoed rewrite
keeps its number. So "the first 12 rewrites" (fuel) and "all but the 12th" (a veto) mean the same in
two compiles. Our own passes, users' plain functions and the Inductor adapter share this class.

Does not watch the graph: who changes it (`Rewriter`, `effect_split`) asks here first.

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
    """Gives ids to the pass runs, rewrites and kernels of one compile, and says which may happen.

    Attributes:
        observer: May veto passes, rewrites and kernels.
        config: Its `disable` vetoes passes, its `fuel` all rewrites with a larger number.
        used: How many rewrites have a number.
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
        is_pass = pass_id.stage != "dispatch"
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
        """Count what has an id; return how many of that name had one before."""
        self._runs[(stage, name)] += 1
        return self._runs[(stage, name)] - 1


NodeState = tuple[object, Any, Any]
"""What a node computes: its target, args and kwargs."""


@dataclass(slots=True)
class PassRun:
    """One run of a pass over a root graph; shared by the rewriters of its sub-graphs.

    Attributes:
        root: The whole graph.
        id: Id of this run.
        numbering: That of the compile.
        earlier: The passes that ran before in this stage; errors name them.
        changed: Whether this run has changed a graph.
        rewrites: What was made and vetoed so far, when somebody watches.
        notes: What the pass said of nodes, when somebody watches.
        states: For each graph that was changed, what its nodes computed before.
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

    def next_rewrite(self, rule: str) -> RewriteId:
        """Return the id of the next rewrite of this run."""
        return self.numbering.rewrite_id(self.id, rule)

    def broken_promise(
        self,
        what: str,
        seen: str,
        advice: str,
        *,
        module: GraphModule,
        node: str | None = None,
    ) -> VerifyError:
        """Return the error of a pass that did not keep its word.

        Args:
            what: What it did, as the end of a sentence that begins with the pass.
            seen: More of what was seen, on a line of its own; "" for nothing.
            advice: What the author of the pass can change.
            module: The graph, which is printed around the node.
            node: Name of the node.
        """
        earlier = ", ".join(map(str, self.earlier)) or "none"
        lines = (
            f"pass {self.id} {what}",
            f"  {seen}" if seen else "",
            excerpt(module.graph, node),
            f"Passes that ran before it in this stage: {earlier}.",
            f"Pass author: {advice}.",
        )
        return VerifyError("\n".join(line for line in lines if line), node=node)

    def prepare(self, module: GraphModule) -> None:
        """Remember for the verifier, before the first change of a graph, what its nodes compute."""
        self.changed = True
        if module not in self.states:
            self.states[module] = {n: (n.target, n.args, n.kwargs) for n in module.graph.nodes}

    def note(self, text: str) -> None:
        """Keep what a pass says of a node for the observer."""
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
