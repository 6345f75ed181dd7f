"""The data of one observed Inductor compile: the stage, the open pattern run, a match to apply."""

from dataclasses import dataclass, field

from torch.fx import GraphModule

from ctk.compiler.fx.same import GraphState
from ctk.compiler.observe import KernelId, PassId, RewriteId, RewriteRecord, Stage
from ctk.toolkit.targets.inductor.lowering import Lowering


@dataclass(slots=True)
class PatternRun:
    """Consecutive matches of one rule, not yet reported."""

    id: PassId
    vetoed: bool
    started: float
    pending: RewriteId | None = None
    rewrites: list[RewriteRecord] = field(default_factory=list[RewriteRecord])


@dataclass(frozen=True, slots=True)
class Attempt:
    """A match of a pattern that is about to be applied.

    Attributes:
        rule: `family.rule`; also the name of the pass that consecutive matches of it form.
        nodes: Names of the matched nodes; the last is the one whose value is replaced.
        replaces: Whether the family's rules are variants of one replacement (else only the rule
            itself repeats).
    """

    rule: str
    nodes: tuple[str, ...]
    replaces: bool

    def repeats(self, refused: "Attempt") -> bool:
        """Return whether this match would repeat the rewrite of a refused match."""
        mine, others = self.nodes[-1:], refused.nodes[-1:]
        if not self.replaces:
            return self.rule == refused.rule and mine == others
        same_family = self.rule.partition(".")[0] == refused.rule.partition(".")[0]
        inside = set(mine) & set(refused.nodes) or set(others) & set(self.nodes)
        return refused.replaces and same_family and bool(inside)


@dataclass(slots=True)
class Frame:
    """A whole graph while Inductor works on it in one stage.

    Attributes:
        stage: The stage of the root graph; passes over its sub-graphs belong to it.
        root: The live graph.
        last: The copy that the last record of this stage ended with.
        mark: State of the live graph at that time.
        path: The graphs that Inductor is in, from the root down to the sub-graph at hand.
        swaps: Sub-graphs that a pass replaced by a new object which is not in the root yet.
        changes: Number of records of this stage that changed the graph.
        kernel: Set once the graph was handed to code generation, with the time of that.
        lowering: Set at the same time: the state of the lowering.
    """

    stage: Stage
    root: GraphModule
    inputs: tuple[object, ...]
    last: GraphModule
    mark: GraphState
    path: list[GraphModule]
    swaps: dict[GraphModule, GraphModule] = field(default_factory=dict[GraphModule, GraphModule])
    changes: int = 0
    run: PatternRun | None = None
    kernel: KernelId | None = None
    kernel_started: float = 0.0
    lowering: Lowering | None = None


class KernelVetoed(BaseException):
    """Leaves Inductor's compile of a graph; no `Exception`: Inductor would take it for its own."""


class KernelsVetoed(BaseException):
    """Leaves the compile of a graph some of whose kernels are refused, before any is compiled."""
