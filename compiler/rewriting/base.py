"""The pass contract: Pass, and the Rewriter through which every change to a graph goes.

A pass reads a graph freely and changes it only by handing an edit to its `Rewriter`. That numbers
the rewrite, asks whether it may happen (fuel, observer) and records the nodes touched. So any pass
can be bisected down to one rewrite without knowing it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Graph, GraphModule, Node

from ctk.compiler.config import Config
from ctk.compiler.fx.copy import copy_graph_module, snapshot_graph
from ctk.compiler.fx.excerpt import excerpt
from ctk.compiler.observe import (
    ErrorRecord,
    Numerics,
    Observer,
    PassId,
    RewriteId,
    RewriteRecord,
    Stage,
)
from ctk.compiler.torch_compat import is_erased


@dataclass(frozen=True, slots=True)
class Pass:
    """A named graph transformation of one stage.

    Attributes:
        name: Unique within its stage's table.
        run: Applies the pass to one graph through its rewriter. Called once for each nested
            sub-graph too, innermost first.
        numerics: What it does to values: `exact`, `reassociates` or `lowers_precision`.
    """

    name: str
    run: Callable[["Rewriter"], None]
    numerics: Numerics = "exact"


@dataclass(slots=True)
class Fuel:
    """Counts and permits the rewrites of one compile. The n-th has the same number in every run."""

    config: Config = field(default_factory=Config)
    observer: Observer | None = None
    used: int = 0
    runs: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])

    def pass_id(self, stage: Stage, name: str) -> PassId:
        """Return the id of the next run of a pass in a stage."""
        occurrence = self.runs[(stage, name)]
        self.runs[(stage, name)] += 1
        return PassId(stage, name, occurrence)

    def allow_pass(self, pass_id: PassId) -> bool:
        names = (pass_id.name, f"{pass_id.stage}/{pass_id.name}", str(pass_id))
        if any(name in self.config.disable for name in names):
            return False
        return self.observer is None or self.observer.allow_pass(pass_id)

    def rewrite_id(self, pass_id: PassId, index: int, rule: str) -> RewriteId:
        self.used += 1
        return RewriteId(self.used, pass_id, index, rule)

    def allow_rewrite(self, rewrite_id: RewriteId) -> bool:
        if self.config.fuel is not None and rewrite_id.number > self.config.fuel:
            return False
        return self.observer is None or self.observer.allow_rewrite(rewrite_id)


NodeState = tuple[object, Any, Any]
"""What a node computes: its target, args and kwargs."""


@dataclass(slots=True)
class PassRun:
    """One run of a pass over a root graph; shared by the rewriters of its sub-graphs."""

    root: GraphModule
    id: PassId
    fuel: Fuel
    count: int = 0
    changed: bool = False
    rewrites: list[RewriteRecord] = field(default_factory=list[RewriteRecord])
    states: dict[GraphModule, dict[Node, NodeState]] = field(
        default_factory=dict[GraphModule, dict[Node, NodeState]]
    )

    def next_rewrite(self, rule: str) -> RewriteId:
        self.count += 1
        return self.fuel.rewrite_id(self.id, self.count, rule)

    def prepare(self, module: GraphModule) -> None:
        """Remember for the verifier, before the first change of a graph, what its nodes compute."""
        self.changed = True
        if module not in self.states:
            self.states[module] = {n: (n.target, n.args, n.kwargs) for n in module.graph.nodes}

    def record(self, rewrite_id: RewriteId, nodes: Sequence[str], *, vetoed: bool = False) -> None:
        observer = self.fuel.observer
        if observer is None:
            return
        keep = observer.keep_rewrites and not vetoed
        after = snapshot_graph(self.root) if keep else None
        self.rewrites.append(RewriteRecord(rewrite_id, tuple(nodes), vetoed, after))


class Rewriter:
    """The one way for a pass to change a graph.

    Attributes:
        module: The graph module at hand (the root, or a nested sub-graph). Read it, do not change
            it.
        config: Options of the compile.
    """

    def __init__(self, run: PassRun, module: GraphModule) -> None:
        self.module = module
        self.config = run.fuel.config
        self._run = run

    @property
    def graph(self) -> Graph:
        return self.module.graph

    def nodes(self) -> Iterator[Node]:
        """Yield the nodes in order; those that a rewrite erases meanwhile are skipped."""
        for node in list(self.module.graph.nodes):
            if not is_erased(node):
                yield node

    def rewrite(self, rule: str, nodes: Sequence[Node], edit: Callable[[Graph], object]) -> bool:
        """Make one rewrite, if it is allowed.

        Args:
            rule: What is applied, as `a op b -> c` or a short name.
            nodes: The nodes that were matched; the first is the anchor that errors name.
            edit: Changes the graph. Runs at most once, right now.

        Returns:
            Whether the rewrite was made.
        """
        run = self._run
        rewrite_id = run.next_rewrite(rule)
        if not run.fuel.allow_rewrite(rewrite_id):
            run.record(rewrite_id, [n.name for n in nodes], vetoed=True)
            return False
        run.prepare(self.module)
        observed = run.fuel.observer is not None
        names = [node.name for node in nodes]
        known = {n.name for n in self.graph.nodes} if observed else set[str]()
        try:
            edit(self.graph)
        except Exception as error:
            annotate(error, run, rewrite_id, nodes[0] if nodes else None)
            raise
        created = [n.name for n in self.graph.nodes if n.name not in known] if observed else []
        run.record(rewrite_id, list(dict.fromkeys([*names, *created])))
        return True

    def replace(self, old: Node, new: Node, *, rule: str) -> bool:
        """Use `new` for every use of `old` and erase `old`."""

        def edit(graph: Graph) -> None:
            old.replace_all_uses_with(new)
            graph.erase_node(old)

        return self.rewrite(rule, [old, new], edit)

    def erase(self, node: Node, *, rule: str) -> bool:
        """Erase a node that has no users."""
        return self.rewrite(rule, [node], lambda graph: graph.erase_node(node))


def annotate(
    error: BaseException, run: PassRun, rewrite: RewriteId | None, node: Node | None
) -> None:
    """Tell the observer of an exception in a pass; note stage, pass, rewrite and node on it."""
    if getattr(error, "ctk_where", None) is not None:
        return
    error.ctk_where = str(run.id)  # type: ignore[attr-defined]  # exceptions take attributes
    name = node.name if node is not None else getattr(error, "node", None)
    place = f"in pass {run.id}" + (f", {rewrite}" if rewrite else "")
    place += f", at node {name}" if name is not None else ""
    around = excerpt(run.root.graph, name)
    error.add_note(
        f"ctk: {place}\n{around}\nctk: without it: CTK_DISABLE={run.id}; whole story: ctk diagnose"
    )
    if run.fuel.observer is not None:
        graph = _copy_if_possible(run.root)
        run.fuel.observer.on_error(
            ErrorRecord(error, run.id.stage, run.id, rewrite, node=name, graph=graph)
        )


def _copy_if_possible(root: GraphModule) -> GraphModule | None:
    """Return a copy for the record of an error; None when the graph is too broken to be copied."""
    try:
        return copy_graph_module(root, lazy=True)
    except Exception:
        return None
