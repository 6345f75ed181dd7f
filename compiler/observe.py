"""What a pipeline tells the outside: the Observer protocol and its event types.

A pipeline knows nothing of the toolkit. It announces each stage, pass, rewrite, kernel and error,
asks before it acts, and hands over whole graphs. This contract is small and frozen early, because
everything hangs on it. The Inductor adapter raises the same events.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch.fx import GraphModule

Stage = Literal["captured", "pre_grad", "joint", "forward", "backward", "frozen", "lowered"]
"""A place where a whole graph exists. An inference graph has no backward: it runs joint, then
forward.
"""

Numerics = Literal["exact", "reassociates", "lowers_precision"]
"""What a pass declares about its effect on values; it selects the row of the tolerance table."""


@dataclass(frozen=True, slots=True)
class PassId:
    """One run of one pass: `stage/name`, and `#k` from its second run in that stage on."""

    stage: Stage
    name: str
    occurrence: int = 0

    def __str__(self) -> str:
        suffix = f"#{self.occurrence + 1}" if self.occurrence else ""
        return f"{self.stage}/{self.name}{suffix}"


@dataclass(frozen=True, slots=True)
class RewriteId:
    """One application inside a pass.

    `number` counts the rewrites of the whole compile from 1 (fuel); `index` counts those of the
    pass from 1. A vetoed rewrite keeps its number, so the n-th rewrite has the same number in every
    run.
    """

    number: int
    pass_id: PassId
    index: int
    rule: str

    def __str__(self) -> str:
        return f"rewrite {self.number} ({self.pass_id}, its {self.index}: {self.rule})"


@dataclass(frozen=True, slots=True)
class KernelId:
    """One compiled graph of one code generator: `stage/codegen:name`."""

    stage: Stage
    codegen: str
    name: str

    def __str__(self) -> str:
        return f"{self.stage}/{self.codegen}:{self.name}"


@dataclass(frozen=True, slots=True)
class RewriteRecord:
    """A rewrite that was made (or vetoed), with the names of the nodes it touched.

    `after` builds the whole graph as it was right after this rewrite; it is there only for
    observers with `keep_rewrites`.
    """

    id: RewriteId
    nodes: tuple[str, ...]
    vetoed: bool = False
    after: Callable[[], GraphModule] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass over a whole graph, sub-graphs included. `before is after` when nothing changed."""

    id: PassId
    numerics: Numerics
    before: GraphModule
    after: GraphModule
    rewrites: tuple[RewriteRecord, ...] = ()
    vetoed: bool = False
    seconds: float = 0.0

    @property
    def changed(self) -> bool:
        return self.before is not self.after


@dataclass(frozen=True, slots=True)
class StageRecord:
    """A whole graph on entry to a stage (a copy), with its example inputs, fake or real."""

    stage: Stage
    graph: GraphModule
    inputs: tuple[object, ...] = field(repr=False, default=())


@dataclass(frozen=True, slots=True)
class KernelRecord:
    """A graph was handed to a code generator; `reason` says why an earlier one did not take it."""

    id: KernelId
    graph: GraphModule
    source: str | None = None
    reason: str | None = None
    vetoed: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The first call of a compiled graph: values in (cloned before it) and out (cloned after it).

    `inputs_after` holds the inputs once the call has returned, so that mutation is seen.
    """

    stage: Stage
    graph: GraphModule
    inputs: tuple[object, ...] = field(repr=False)
    outputs: tuple[object, ...] = field(repr=False)
    inputs_after: tuple[object, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception, its type kept, and where it was raised; `graph` is the graph around it."""

    error: BaseException
    stage: Stage
    pass_id: PassId | None = None
    rewrite: RewriteId | None = None
    kernel: KernelId | None = None
    node: str | None = None
    graph: GraphModule | None = None


class Observer(Protocol):
    """Sees every pass and may veto a pass, a rewrite or a kernel. A vetoed kernel runs as eager."""

    @property
    def keep_rewrites(self) -> bool:
        """Whether `RewriteRecord.after` is wanted (a copy of the graph for each rewrite)."""
        ...

    @property
    def keep_calls(self) -> bool:
        """Whether `on_call` is wanted (clones of the values of the first call)."""
        ...

    def allow_pass(self, pass_id: PassId) -> bool: ...
    def allow_rewrite(self, rewrite_id: RewriteId) -> bool: ...
    def allow_kernel(self, kernel_id: KernelId) -> bool: ...
    def on_stage(self, record: StageRecord) -> None: ...
    def on_pass(self, record: PassRecord) -> None: ...
    def on_kernel(self, record: KernelRecord) -> None: ...
    def on_call(self, record: CallRecord) -> None: ...
    def on_error(self, record: ErrorRecord) -> None: ...


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an exception's message, or its type's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
