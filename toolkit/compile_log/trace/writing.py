"""Make a trace of a compile log, within limits, and write it.

The steps that are wrong come first when room is given away, so that a limit cuts the right ones.
"""

import json
import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ctk.compiler.errors import count_of
from ctk.compiler.observe import KernelRecord, RewriteRecord, first_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.limits import TRACE_NBYTES, TRACE_NODES
from ctk.toolkit.case.formats.plain_text import many_lines
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.formats.scrub import scrub_line
from ctk.toolkit.compile_log.check import Finding
from ctk.toolkit.compile_log.error_history import (
    ErrorChange,
    ErrorSize,
    measure_steps,
    sort_by_growth,
)
from ctk.toolkit.compile_log.kernel_source import find_lines
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep, every_step
from ctk.toolkit.compile_log.trace.document import (
    FILE,
    Trace,
    TraceError,
    TraceErrorSize,
    TraceKernel,
    TraceRewrite,
    TraceStep,
)
from ctk.toolkit.compile_log.trace.graph_table import GraphTable

MOST_STEPS = 2_000
MOST_NODES = 40_000
"""Nodes in the edits of all graphs: about 300 bytes each."""

MOST_SOURCE = 1 << 20
"""Characters of the sources and loop IRs of all kernels."""

MOST_ERRORS = 50
"""Values of one step whose errors are kept."""

ERRORS_SHARE = 0.1
"""Longest measurement of errors, as a share of the time of the operation before it."""

ERRORS_SECONDS = 2.0
"""A shorter limit counts as this."""

Key = tuple[str, str, str]
"""Kind, id and stage of a step."""


def make_trace(
    case: Case, log: CompileLog, findings: Sequence[Finding] = (), *, end: float | None = None
) -> Trace:
    """Return the trace of a compile.

    Args:
        case: The compiled case; its signature is the failure, if it failed.
        findings: Those of the check, as far as it went.
        end: When the measurement of errors ends (`time.monotonic`); None: errors are not measured.
    """
    return _Builder(case, log, {_key(each.step): each for each in findings}).build(end)


def end_of_errors(seconds: float) -> float:
    """Return when the measurement of errors ends that starts now, after some seconds of work."""
    return time.monotonic() + max(ERRORS_SHARE * seconds, ERRORS_SECONDS)


def write_trace(trace: Trace, folder: Path) -> Path:
    """Write `trace.json` into a folder, in one step; return its path.

    A trace beyond the size that can be read is written as its list of steps.
    """
    path, text = folder / FILE, _json(trace)
    write_text(path, text if len(text) <= TRACE_NBYTES else _json(_without_details(trace)))
    return path


def _json(trace: Trace) -> str:
    return json.dumps(encode(trace), separators=(",", ":"), allow_nan=False)


def _without_details(trace: Trace) -> Trace:
    steps = tuple(
        replace(step, before=None, after=None, rewrites=(), errors=None, kernel=None)
        for step in trace.steps
    )
    cut = f"graphs, rewrites, errors and kernels left out: more than {TRACE_NBYTES >> 20} MiB"
    return replace(trace, steps=steps, graphs=(), cut=(*trace.cut, cut))


@dataclass(slots=True)
class _Builder:
    """Makes the trace of one log; `cut` collects the omissions."""

    case: Case
    log: CompileLog
    findings: Mapping[Key, Finding]
    graphs: GraphTable = field(default_factory=lambda: GraphTable(MOST_NODES))
    source_room: int = field(default_factory=lambda: MOST_SOURCE)
    lost_sources: int = 0
    lost_errors: int = 0
    cut: list[str] = field(default_factory=list[str])
    _kernels: Mapping[str, KernelRecord] = field(init=False)

    def __post_init__(self) -> None:
        self._kernels = {str(each.id): each for each in reversed(self.log.kernels())}

    def build(self, end: float | None) -> Trace:
        """Return the trace; `end` as in `make_trace`."""
        every = self._list_steps()
        steps = self._choose(every)
        wrong_first = sorted(steps, key=lambda step: not self._is_wrong(step))
        errors = {} if end is None else self._measure(wrong_first, end)
        made = {id(step): self._convert(step, errors.get(id(step))) for step in wrong_first}
        rows = _insert_errors([made[id(step)] for step in steps], self._raised())
        rows += islice(self._unrecorded_kernels({step.where for step in every}), MOST_STEPS)
        self._note_cuts()
        graphs = tuple(self.graphs.graphs)
        return Trace(self.case.name, self.case.target, tuple(rows), graphs, tuple(self.cut))

    def _list_steps(self) -> list[CompileStep]:
        """Return the steps, those of findings outside of the log first."""
        steps = [*every_step(self.log)]
        known = {_key(step) for step in steps}
        others = [each.step for key, each in self.findings.items() if key not in known]
        return [*others, *steps]

    def _choose(self, steps: list[CompileStep]) -> list[CompileStep]:
        """Return the steps to keep, in order: of too many, the wrong and the busy ones."""
        ranked = sorted(steps, key=lambda s: (not self._is_wrong(s), s.before is s.after))
        kept = {id(step) for step in ranked[:MOST_STEPS]}
        if len(steps) > MOST_STEPS:
            self.cut.append(f"{len(steps) - MOST_STEPS} of {len(steps)} steps are left out")
        return [step for step in steps if id(step) in kept]

    def _is_wrong(self, step: CompileStep) -> bool:
        finding = self.findings.get(_key(step))
        return finding is not None and finding.status == "wrong"

    # --- errors ---------------------------------------------------------------------------------

    def _measure(self, steps: Sequence[CompileStep], end: float) -> dict[int, list[ErrorChange]]:
        """Return the error changes of steps until the time is over."""
        found: dict[int, list[ErrorChange]] = {}
        declared = ("meta", "operator")  # these steps have no values
        busy = [s for s in steps if s.before is not s.after and s.kind not in declared]
        started = time.monotonic()
        for number, (step, changes) in enumerate(measure_steps(self.case, self.log, busy), 1):
            if changes is not None:
                found[id(step)] = changes
            if time.monotonic() > end and number < len(busy):
                seconds = time.monotonic() - started
                self.cut.append(
                    f"the errors of {len(busy) - number} of {count_of(len(busy), 'step')} were not "
                    f"measured: {seconds:.0f} s had passed (ctk check --history measures all)"
                )
                break
        return found

    # --- one step -------------------------------------------------------------------------------

    def _convert(self, step: CompileStep, changes: Sequence[ErrorChange] | None) -> TraceStep:
        finding, record = self.findings.get(_key(step)), step.record
        kernel = self._kernel_of(step)
        seconds = record.seconds if record is not None else kernel.seconds if kernel else None
        made = TraceStep(
            id=step.where,
            kind=step.kind,
            stage=step.stage,
            before=self.graphs.add(step.before if kernel is None else kernel.graph),
            after=self.graphs.add(step.after),
            numerics=None if step.kind == "stage" else step.numerics,
            seconds=None if seconds is None else round(seconds, 6),
            vetoed=record is not None and record.vetoed,
            rewrites=_rewrites(record.rewrites) if record is not None else (),
            errors=None if changes is None else tuple(map(_error, self._worst(changes))),
            kernel=None if kernel is None else self._kernel(kernel, finding),
        )
        return made if finding is None else _with_finding(made, finding)

    def _worst(self, changes: Sequence[ErrorChange]) -> Sequence[ErrorChange]:
        self.lost_errors += max(len(changes) - MOST_ERRORS, 0)
        return sort_by_growth(changes)[:MOST_ERRORS]

    # --- kernels --------------------------------------------------------------------------------

    def _kernel_of(self, step: CompileStep) -> KernelRecord | None:
        """Return the kernel that a step is; a graph of several kernels may have none of its own."""
        if step.kind != "kernel":
            return None
        return self._kernels.get(step.where)

    def _kernel(self, record: KernelRecord, finding: Finding | None) -> TraceKernel:
        source, ir = self._fit(record.source), self._fit(record.ir)
        wrong = finding is not None and finding.status == "wrong" and source is not None
        lines = find_lines(record, finding.node or "") if wrong and finding is not None else []
        return TraceKernel(
            nodes=record.nodes,
            source=source,
            suffix=record.suffix,
            ir=ir,
            reason=record.reason or "",
            wrong_lines=tuple(line + 1 for line in lines),
        )

    def _fit(self, text: str | None) -> str | None:
        """Return a text if there is room for it."""
        if text is None or len(text) > self.source_room:
            self.lost_sources += text is not None
            return None
        self.source_room -= len(text)
        return many_lines(text)

    def _unrecorded_kernels(self, known: Container[str]) -> Iterator[TraceStep]:
        """Yield the kernels whose values were not recorded: those of a graph that did not run."""
        for record in self.log.kernels():
            if str(record.id) not in known:
                yield TraceStep(
                    str(record.id), "kernel", "lowered",
                    before=self.graphs.add(record.graph),
                    seconds=round(record.seconds, 6),
                    vetoed=record.vetoed,
                    kernel=self._kernel(record, None),
                )  # fmt: skip

    # --- exceptions -----------------------------------------------------------------------------

    def _raised(self) -> Iterator[TraceStep]:
        """Yield the steps that raised; all but the last of a failing compile were caught."""
        signature = self.case.signature
        fatal = self.log.errors()[-1:] if signature is not None and signature.exception else []
        for record in self.log.errors()[-MOST_STEPS:]:
            text = f"{type(record.error).__name__}: {first_line(record.error)}"
            is_fatal = record in fatal
            yield TraceStep(
                str(record.kernel or record.pass_id or record.stage),
                "kernel" if record.kernel else "pass" if record.pass_id else "stage",
                record.stage,
                before=self.graphs.add(record.graph),
                status="wrong" if is_fatal else "unknown",
                node=record.node or "",
                mismatch=scrub_line(text) if is_fatal else "",
                reason="" if is_fatal else scrub_line(f"it raised {text}"),
            )

    def _note_cuts(self) -> None:
        if self.lost_errors:
            self.cut.append(
                f"{count_of(self.lost_errors, 'error')} left out: of each step the {MOST_ERRORS} "
                "worst are kept"
            )
        if self.graphs.left_out:
            self.cut.append(
                f"{count_of(self.graphs.left_out, 'graph')} left out: more than {MOST_NODES:,} "
                f"nodes changed, or all graphs have more than {TRACE_NODES:,}"
            )
        if self.lost_sources:
            self.cut.append(
                f"{count_of(self.lost_sources, 'source')} of kernels left out: together they have "
                f"more than {MOST_SOURCE:,} characters"
            )


def _key(step: CompileStep) -> Key:
    return step.kind, step.where, step.stage


def _with_finding(step: TraceStep, finding: Finding) -> TraceStep:
    mismatch = finding.mismatch
    return replace(
        step,
        status=finding.status,
        node=finding.node or "",
        mismatch=scrub_line(f"{mismatch.kind}: {mismatch.detail}") if mismatch else "",
        compared=finding.compared,
        reason=scrub_line(finding.reason),
    )


def _insert_errors(rows: list[TraceStep], raised: Iterable[TraceStep]) -> list[TraceStep]:
    """Return steps with the raising ones inserted, each after the last step of its stage."""
    for step in raised:
        last = max((i for i, row in enumerate(rows) if row.stage == step.stage), default=len(rows))
        rows.insert(last + 1, step)
    return rows


def _rewrites(records: Iterable[RewriteRecord]) -> tuple[TraceRewrite, ...]:
    return tuple(
        TraceRewrite(each.id.number, each.id.index, each.id.rule, each.nodes, each.vetoed)
        for each in records
    )


def _error(change: ErrorChange) -> TraceError:
    before, after = map(_size, (change.before, change.after))
    return TraceError(change.value, change.node, change.dtype, before, after)


def _size(error: ErrorSize) -> TraceErrorSize:
    return TraceErrorSize(*map(_finite, (error.max_ulp, error.max_abs, error.rms)))


def _finite(number: float) -> float | None:
    """Return a number rounded to five digits; None if it is infinite."""
    rounded = float(f"{number:.5g}")  # the largest number rounds to infinity
    return rounded if math.isfinite(rounded) else None
