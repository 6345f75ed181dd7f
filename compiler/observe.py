"""The interface between a compile and its observers: the Observer protocol and its records.

A compile announces each stage, pass, rewrite, kernel and error, and asks before it acts. The
Inductor adapter raises the same events.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol, cast

from torch.fx import GraphModule

from ctk.compiler.errors import message_of

Stage = Literal[
    "operator",
    "captured", "pre_grad", "dispatch", "joint", "forward", "backward", "frozen", "lowered",
]  # fmt: skip
"""A place where a whole graph exists. An inference graph has no backward: it runs joint, then
forward. The stage `dispatch` is the way from Torch IR to functional ATen: its passes are the
decompositions and functionalization. `operator` stands for the custom operators of a program, which
are part of no graph: each is one pass, `operator/mylib::scale`.
"""

Numerics = Literal["exact", "reassociates", "lowers_precision"]
"""The declared effect of a pass on values; it selects the row of the tolerance table."""


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
    """One kernel of one code generator: `lowered/codegen:name`, and `#k` from its second on.

    The name begins with the graph's stage: `forward` for a kernel that is the whole graph,
    `forward.add` for one of many.
    """

    codegen: str
    name: str
    occurrence: int = 0

    def __str__(self) -> str:
        suffix = f"#{self.occurrence + 1}" if self.occurrence else ""
        return f"lowered/{self.codegen}:{self.name}{suffix}"


@dataclass(frozen=True, slots=True)
class RewriteRecord:
    """A rewrite made or vetoed; `after` builds the whole graph behind it (with `keep_rewrites`)."""

    id: RewriteId
    nodes: tuple[str, ...]
    vetoed: bool = False
    after: Callable[[], GraphModule] | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TracedValue:
    """A value of a traced graph, by the name of its node."""

    node: str


@dataclass(frozen=True, slots=True)
class Decomposed:
    """One operator that dispatch replaced by others while it traced.

    Attributes:
        args: Its arguments; tensors are replaced by `TracedValue`.
        results: Its results with their nesting; likewise.
        captured: The captured node under trace; None in backward.
    """

    operator: Callable[..., object] = field(repr=False)
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    results: object
    captured: str | None = None


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One pass over a whole graph, sub-graphs included. `before is after` when nothing changed.

    Attributes:
        numerics: Its declared effect on values.
        rewrites: Its changes, one by one.
        seconds: Its duration.
        nodes: For a step of dispatch, which has no graphs: the captured nodes that it met.
        decomposed: For a decomposition: each operator that it replaced, by the known names of the
            traced graph.
        notes: Its remarks on nodes: measurements, reasons against a rewrite.
    """

    id: PassId
    numerics: Numerics
    before: GraphModule
    after: GraphModule
    rewrites: tuple[RewriteRecord, ...] = ()
    vetoed: bool = False
    seconds: float = 0.0
    nodes: tuple[str, ...] = ()
    decomposed: tuple[Decomposed, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()

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
    """A kernel: some nodes of a graph, or all of them, as one compiled function.

    Attributes:
        graph: A copy of the whole graph.
        nodes: Names of the nodes that it computes, in the order of the graph; empty for all.
        suffix: Suffix of a file with that code.
        reason: Why earlier code generators did not take the graph.
        vetoed: Whether its nodes run in eager instead.
        seconds: Time from the question whether it is allowed to its completion.
        stores: Name in the source of the memory of each stored node: `out_ptr0`.
        ir: The loops behind the code, if the generator has loops.
    """

    id: KernelId
    graph: GraphModule
    nodes: tuple[str, ...] = ()
    source: str | None = field(default=None, repr=False)
    suffix: str = ".py"
    reason: str | None = None
    vetoed: bool = False
    seconds: float = 0.0
    stores: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    ir: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """The values of one kernel in a recorded call: clones, by the name of the node.

    Attributes:
        values: Its results; empty for a kernel that is the whole graph, because the call has them.
        read: Its operands right before it ran. The unchanged result of an earlier kernel is the
            same object here and there.
    """

    id: KernelId
    values: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    read: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """The first call of a compiled graph: values in (cloned before it) and out (cloned after it).

    Attributes:
        inputs_after: The inputs after the call, which show mutation.
        kernels: Its kernels: first the kernels with recorded values, in the order in which they
            returned.
    """

    stage: Stage
    graph: GraphModule
    inputs: tuple[object, ...] = field(repr=False)
    outputs: tuple[object, ...] = field(repr=False)
    inputs_after: tuple[object, ...] = field(repr=False)
    kernels: tuple[KernelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorRecord:
    """An exception of unchanged type and its place; `graph` is the graph around it."""

    error: BaseException
    stage: Stage
    pass_id: PassId | None = None
    rewrite: RewriteId | None = None
    kernel: KernelId | None = None
    node: str | None = None
    graph: GraphModule | None = None


class Observer(Protocol):
    """Gets every pass and may veto a pass, a rewrite or a kernel. A vetoed kernel runs in eager.

    All methods but `on_call` and `on_error` are called on the thread that compiles, one after the
    other, while the compile waits. A backward graph may be compiled much later than the forward
    graph, at the first backward call. The observer owns each record; the graphs in it are copies.

    An exception of an observer is not a failure of the compile: it ends the compile unchanged, no
    fallback catches it, and `is_observers` recognises it.
    """

    @property
    def keep_rewrites(self) -> bool:
        """Whether `RewriteRecord.after` is wanted (a graph each); read at each rewrite."""
        ...

    @property
    def keep_calls(self) -> bool:
        """Whether `on_call` is wanted (clones of the values of the first call).

        Read once per compiled graph, when it has been compiled.
        """
        ...

    @property
    def keep_launches(self) -> bool:
        """Whether `on_launch` is wanted; read once per compiled graph, after its compile."""
        ...

    def allow_pass(self, pass_id: PassId) -> bool:
        """Return whether a pass may run. Called once per run of a pass, right before it.

        Not called for a pass in `Config.disable`. Called for a decomposition whenever it begins
        after another one; the first answer counts. Called for a Dynamo backend as a whole
        (`lowered/NAME:captured`), which may never return.
        """
        ...

    def allow_rewrite(self, rewrite_id: RewriteId) -> bool:
        """Return whether a rewrite may be made. Called once per rewrite, right before it.

        Not called for a rewrite beyond `Config.fuel`.
        """
        ...

    def allow_kernel(self, kernel_id: KernelId) -> bool:
        """Return whether a kernel may be generated. Called once per kernel, right before that.

        The generator may refuse the graph afterwards.
        """
        ...

    def on_stage(self, record: StageRecord) -> None:
        """Get a graph on entry to a stage; once per stage and graph, before the stage's passes."""
        ...

    def on_pass(self, record: PassRecord) -> None:
        """Get the record of a pass; once per run, vetoed and idle runs included.

        A pass that raises has no record, but an `on_error`.
        """
        ...

    def on_kernel(self, record: KernelRecord) -> None:
        """Get a kernel, also a vetoed one; once, when its whole graph has been compiled.

        The kernels of a generator that refused the graph or failed are not reported.
        """
        ...

    def on_launch(self, kernel_id: KernelId) -> None:
        """Get the id of a kernel before it runs, of its graph after it; on the calling thread."""
        ...

    def on_call(self, record: CallRecord) -> None:
        """Get the values of a compiled graph's first call that returns; once per compiled graph.

        Called after the call, on the thread that made it: a thread of autograd for a backward graph
        on a device. Only when `keep_calls`.
        """
        ...

    def on_error(self, record: ErrorRecord) -> None:
        """Get an exception before it propagates or a fallback begins; once per exception.

        Called on the thread that raised it, which compiles or calls.
        """
        ...


def mark_errors(observer: Observer | None) -> Observer | None:
    """Return an observer whose exceptions `is_observers` recognises."""
    if observer is None or isinstance(observer, _Marking):
        return observer
    return cast("Observer", _Marking(observer))


def is_observers(error: BaseException) -> bool:
    """Return whether an observer raised this or one of its causes."""
    cause: BaseException | None = error
    while cause is not None and vars(cause).get("ctk_where") != OBSERVER:
        cause = cause.__cause__
    return cause is not None


OBSERVER = "observer"
"""The `ctk_where` of an exception that an observer raised."""


class _Marking:
    """Forwards all calls to an observer, and marks its exceptions."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def __getattr__(self, name: str) -> object:
        value = getattr(self._observer, name)
        return partial(self._call, name, value) if callable(value) else value

    def _call(self, name: str, method: Callable[..., object], *args: object) -> object:
        try:
            return method(*args)
        except Exception as error:
            vars(error)["ctk_where"] = OBSERVER
            kind = type(self._observer).__name__
            error.add_note(f"ctk: raised by the observer, in {kind}.{name}; not by the compile")
            raise


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of an exception's message, or its type's name."""
    lines = [line.strip() for line in message_of(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
