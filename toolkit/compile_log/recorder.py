"""`CompileLog`: the events of one compile. `Recorder`: fills it, and applies a `Veto`."""

from collections.abc import Callable
from dataclasses import dataclass, field

from ctk.compiler.observe import (
    CallRecord,
    ErrorRecord,
    KernelId,
    KernelRecord,
    PassId,
    PassRecord,
    RewriteId,
    StageRecord,
)
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.processes.link import report_alive

Event = StageRecord | PassRecord | KernelRecord | CallRecord | ErrorRecord


EVERY_KERNEL = "*"
EVERY_DECOMPOSITION = "dispatch/decompose.*"


@document
@dataclass(frozen=True, slots=True)
class Veto:
    """Events to suppress: passes and kernels by the `str` of their id, rewrites by number.

    `fuel` limits the number of rewrites; None: no limit. The kernel `*` stands for all kernels. A
    pass that ends with `*` stands for all whose ids begin so, also those of which no log knows yet:
    `dispatch/decompose.*` for all decompositions, `joint/*` for the passes of a stage.
    """

    passes: frozenset[str] = frozenset()
    rewrites: frozenset[int] = frozenset()
    kernels: frozenset[str] = frozenset()
    fuel: int | None = None


@dataclass(slots=True)
class CompileLog:
    """The events of one compile, in order."""

    events: list[Event] = field(default_factory=list[Event])

    def passes(self) -> list[PassRecord]:
        return [event for event in self.events if isinstance(event, PassRecord)]

    def kernels(self) -> list[KernelRecord]:
        return [event for event in self.events if isinstance(event, KernelRecord)]

    def stages(self) -> list[StageRecord]:
        return [event for event in self.events if isinstance(event, StageRecord)]

    def calls(self) -> list[CallRecord]:
        return [event for event in self.events if isinstance(event, CallRecord)]

    def errors(self) -> list[ErrorRecord]:
        return [event for event in self.events if isinstance(event, ErrorRecord)]


class Recorder:
    """The Observer that fills a `CompileLog` and applies a `Veto`.

    Args:
        keep_rewrites: Keep a copy of the graph after each rewrite.
        keep_calls: Keep the values of each compiled graph's first call.
        on_event: Called with each event as it arrives; a dump writes its folders here, so that a
            crash loses nothing.
        on_start: Called with the id of each pass and kernel before it runs, and of each kernel
            before a call: the last one of a crash.
    """

    def __init__(
        self,
        veto: Veto | None = None,
        *,
        keep_rewrites: bool = False,
        keep_calls: bool = False,
        on_event: Callable[[Event], None] | None = None,
        on_start: Callable[[str], None] | None = None,
    ) -> None:
        self.log = CompileLog()
        self.veto = veto or Veto()
        ends = tuple(each for each in self.veto.passes if each.endswith("*"))
        self._refused_starts = tuple(each.removesuffix("*") for each in ends)
        self.keep_rewrites = keep_rewrites
        self.keep_calls = keep_calls
        self.keep_launches = on_start is not None
        self._on_event = on_event
        self._on_start = on_start

    def allow_pass(self, pass_id: PassId) -> bool:
        identity = str(pass_id)
        self._start(identity)
        if identity.startswith(self._refused_starts):
            return False
        # A whole backend counts as a pass with the name of its one kernel.
        return identity not in self.veto.passes and identity not in self.veto.kernels

    def allow_rewrite(self, rewrite_id: RewriteId) -> bool:
        if self.veto.fuel is not None and rewrite_id.number > self.veto.fuel:
            return False
        return rewrite_id.number not in self.veto.rewrites

    def allow_kernel(self, kernel_id: KernelId) -> bool:
        self._start(str(kernel_id))
        return not self.veto.kernels & {str(kernel_id), EVERY_KERNEL}

    def _start(self, identity: str) -> None:
        report_alive()
        if self._on_start:
            self._on_start(identity)

    def on_launch(self, kernel_id: KernelId) -> None:
        self._start(str(kernel_id))

    def _add(self, record: Event) -> None:
        report_alive()
        self.log.events.append(record)
        if self._on_event:
            self._on_event(record)

    on_stage = on_pass = on_kernel = on_call = on_error = _add
