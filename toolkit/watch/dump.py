"""Write the events of a compile into the folder of its graph.

Each event is written as it arrives, so that all events before a crash are on disk. Layout below the
case folder of a graph:

    stages/00_captured.py                    a whole graph on entry to a stage
    passes/007_joint_fold_constants.diff     the changes of a pass (none: no file)
    passes/007_joint_fold_constants.py       the graph after it
    kernels/forward_torchscript.py           source of a kernel
    events.jsonl                             one line per event, passes without effect included
    errors.txt                               exceptions and where they were raised

It never raises into the compile: the first problem ends the dump of that graph with one log line.
"""

import contextlib
import json
import logging
import re
import shlex
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from torch.fx import GraphModule, Node

from ctk.compiler.errors import CaseError, NoSuchCase
from ctk.compiler.fx.walk import CALLS
from ctk.compiler.observe import (
    CallRecord,
    ErrorRecord,
    KernelRecord,
    PassRecord,
    StageRecord,
    first_line,
)
from ctk.toolkit.case.formats.bounded_file import read_bounded
from ctk.toolkit.case.formats.checked_types import Positive, Size
from ctk.toolkit.case.formats.files import append_line, append_text, free_path, write_text
from ctk.toolkit.case.formats.limits import EVENTS as MOST_EVENTS
from ctk.toolkit.case.formats.limits import EVENTS_NBYTES, LINE_NBYTES, check_at_most
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH
from ctk.toolkit.case.formats.schema import decode, document, encode
from ctk.toolkit.case.formats.scrub import scrub_line
from ctk.toolkit.case.graphs.graph_lines import graph_diff, graph_lines
from ctk.toolkit.case.graphs.places import module_of
from ctk.toolkit.compile_log.recorder import Event

logger = logging.getLogger(__name__)


EVENTS = "events.jsonl"
MOST_MODULES = 200
"""Modules that one event names."""


@document
@dataclass(frozen=True, slots=True)
class DumpedPass:
    """A line of `events.jsonl` about a pass: how often it fired, and its vetoed rewrites."""

    pass_: str
    number: int
    changed: bool
    vetoed: bool
    rewrites: int
    vetoed_rewrites: int
    seconds: Size
    event: Literal["pass"] = "pass"


@document
@dataclass(frozen=True, slots=True)
class DumpedKernel:
    """A line of `events.jsonl` about a kernel; empty `nodes` stand for the whole graph.

    Attributes:
        reason: Why earlier code generators did not take the graph.
        modules: The modules of its nodes, by the number of nodes.
    """

    kernel: str
    nodes: tuple[str, ...]
    vetoed: bool
    seconds: Size
    reason: str | None = None
    file: str | None = None
    modules: Mapping[str, Positive] = field(default_factory=dict[str, int])
    event: Literal["kernel"] = "kernel"


@document
@dataclass(frozen=True, slots=True)
class DumpedStage:
    """A line of `events.jsonl` about a stage; `modules` as of a kernel, for calls."""

    stage: str
    nodes: int
    modules: Mapping[str, Positive] = field(default_factory=dict[str, int])
    event: Literal["stage"] = "stage"


Dumped = TypeVar("Dumped")
T = TypeVar("T")


@dataclass(slots=True)
class DumpWriter:
    """Writes the events of one compile; `write` is the `on_event` of a `Recorder`.

    Attributes:
        missed: Called once with the reason why the rest of the dump is missing.
    """

    folder: Path
    missed: Callable[[str], None] | None = None
    _stages: int = 0
    _passes: int = 0
    _problem: bool = False
    _latest: dict[str, GraphModule] = field(default_factory=dict[str, GraphModule])

    def write(self, event: Event) -> None:
        """Write one event; an error is logged once and never reaches the compile."""
        if not self._problem:
            what = f"the dump to {self.folder}"
            self._problem = not run_guarded(lambda: self._write(event), what, self.missed)

    def _write(self, event: Event) -> None:
        match event:
            case StageRecord():
                self._write_stage(event)
            case PassRecord():
                self._write_pass(event)
            case KernelRecord():
                self._write_kernel(event)
            case ErrorRecord():
                self._write_error(event)
            case CallRecord():
                kernels = [str(kernel.id) for kernel in event.kernels]
                self._append({"event": "call", "stage": event.stage, "kernels": kernels})

    def _write_stage(self, record: StageRecord) -> None:
        number, self._stages = self._stages, self._stages + 1
        self._latest[record.stage] = record.graph
        write_text(
            self.folder / "stages" / f"{number:02}_{record.stage}.py", graph_text(record.graph)
        )
        calls = [node for node in record.graph.graph.nodes if node.op in CALLS]
        line = DumpedStage(record.stage, len(record.graph.graph.nodes), count_modules(calls))
        self._note(line)

    def _write_pass(self, record: PassRecord) -> None:
        number, self._passes = self._passes, self._passes + 1
        self._note(_describe_pass(record, number))
        if not record.changed:
            return
        stem = file_stem(f"{number:03}_{str(record.id).replace('/', '_')}")
        folder = self.folder / "passes"
        if self._latest.get(record.id.stage) is not record.before:
            write_text(folder / f"{stem}.before.py", graph_text(record.before))
        self._latest[record.id.stage] = record.after
        diff = graph_diff(record.before, record.after)
        write_text(folder / f"{stem}.diff", _pass_header(record) + diff)
        write_text(folder / f"{stem}.py", graph_text(record.after))

    def _write_kernel(self, record: KernelRecord) -> None:
        path = None
        if record.source is not None:
            stem = file_stem(f"{record.id.name}_{record.id.codegen}")
            path = free_path(self.folder / "kernels" / f"{stem}{record.suffix}")
            write_text(path, record.source)
        nodes = [n for n in record.graph.graph.nodes if not record.nodes or n.name in record.nodes]
        line = DumpedKernel(
            kernel=str(record.id),
            nodes=record.nodes,
            vetoed=record.vetoed,
            seconds=round(record.seconds, 6),
            reason=record.reason,
            file=path.name if path else None,
            modules=count_modules(nodes),
        )
        self._note(line)

    def _write_error(self, record: ErrorRecord) -> None:
        parts = [record.stage, record.pass_id, record.rewrite, record.kernel, record.node]
        head = ", ".join(dict.fromkeys(str(part) for part in parts if part is not None))
        message = scrub_line(first_line(record.error), REASON_LENGTH)
        name = type(record.error).__name__
        self._append({"event": "error", "where": head, "error": name, "message": message})
        graph = "\n".join(graph_lines(record.graph)) if record.graph is not None else ""
        text = f"where: {head}\n{exception_text(record.error)}\n{graph}\n"
        append_text(self.folder / "errors.txt", text)

    def _note(self, line: DumpedStage | DumpedPass | DumpedKernel) -> None:
        facts = encode(line)
        self._append({"event": facts.pop("event"), **facts})

    def _append(self, facts: Mapping[str, object]) -> None:
        append_line(self.folder / EVENTS, json.dumps(facts))


def count_modules(nodes: Iterable[Node]) -> dict[str, int]:
    """Return the modules whose code some nodes are, by the number of nodes, the largest first."""
    counts = Counter(module_of(node) for node in nodes)
    return {module: count for module, count in counts.most_common(MOST_MODULES) if module}


def read_dumped(kind: type[Dumped], folder: Path, file: str = EVENTS) -> list[Dumped]:
    """Return the lines of a kind in a file of a dump, in order; none without the file."""
    path, found = folder / file, list[Dumped]()
    if not path.is_file():
        return found
    (name,) = (each.default for each in fields(cast("Any", kind)) if each.name == "event")
    word = f'"{name}"'.encode()
    for line in read_bounded(path, EVENTS_NBYTES).splitlines():
        if word not in line or len(line) > LINE_NBYTES:
            continue
        with contextlib.suppress(CaseError):  # another event, or a last line that was cut off
            found.append(decode(kind, line, where=file))
        check_at_most(len(found), MOST_EVENTS, f'{file} in {folder}: "{name}" events')
    return found


def find_dumped_diff(folder: Path, number: int) -> tuple[DumpedPass, Path | None]:
    """Return a pass in the dump of a graph, and the file of its changes, if there are any.

    Raises:
        CaseError: There is no such pass, or no dump of passes.
    """
    passes = {line.number: line for line in read_dumped(DumpedPass, folder)}
    if number not in passes:
        available = f"its passes are 0 to {len(passes) - 1}" if passes else "no passes were dumped"
        raise NoSuchCase(
            f"{folder} has no pass {number}: {available}\n"
            f"  see them: ctk show {shlex.quote(str(folder))}\n"
            "  dump them: CTK_DUMP=DIR"
        )
    return passes[number], next((folder / "passes").glob(f"{number:03}_*.diff"), None)


def run_guarded(
    action: Callable[[], object], label: str, missed: Callable[[str], None] | None = None
) -> bool:
    """Run an action as `compute_guarded` does; return whether it succeeded."""
    return compute_guarded(lambda: (action(),), label, missed) is not None


def compute_guarded(
    action: Callable[[], T], label: str, missed: Callable[[str], None] | None = None
) -> T | None:
    """Return the result of an action of ctk inside the user's program.

    An exception becomes one log line, and the result is None.
    """
    try:
        return action()
    except Exception as error:
        logger.warning(
            "ctk: %s stopped: %s: %s; the program goes on (the traceback is logged at DEBUG)",
            label,
            type(error).__name__,
            first_line(error),
        )
        logger.debug("ctk: %s stopped", label, exc_info=error)
        if missed is not None:
            missed(f"{type(error).__name__}: {first_line(error)}")
        return None


def graph_text(gm: GraphModule) -> str:
    """Return a graph as readable Python with types, or one line per node if that fails."""
    try:
        text = gm.print_readable(print_output=False)
    except Exception as error:  # user-defined reprs may raise
        lines = [f"# not printable as Python: {type(error).__name__}: {first_line(error)}"]
        text = "\n".join([*lines, *(f"# {line}" for line in graph_lines(gm))])
    return f"{text.rstrip()}\n"


def exception_text(error: BaseException) -> str:
    """Return an exception with its traceback and causes."""
    return "".join(traceback.format_exception(error))


def file_stem(text: str) -> str:
    """Return a text as part of a file name: at most 80 letters, digits, `-`, `_`, `.`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80] or "unnamed"


def _describe_pass(record: PassRecord, number: int) -> DumpedPass:
    made = sum(not rewrite.vetoed for rewrite in record.rewrites)
    return DumpedPass(
        pass_=str(record.id),
        number=number,
        changed=record.changed,
        vetoed=record.vetoed,
        rewrites=made,
        vetoed_rewrites=len(record.rewrites) - made,
        seconds=round(record.seconds, 6),
    )


def _pass_header(record: PassRecord) -> str:
    before, after = len(record.before.graph.nodes), len(record.after.graph.nodes)
    lines = [f"pass {record.id}, numerics: {record.numerics}, nodes: {before} -> {after}"]
    for rewrite in record.rewrites:
        state = " (vetoed)" if rewrite.vetoed else ""
        lines.append(f"{rewrite.id}{state}: {', '.join(rewrite.nodes)}")
    return "".join(f"# {line}\n" for line in lines)
