"""The content of a dump folder as data: graphs, seconds, fallbacks, graph breaks, recompiles.

It reads manifests, `events.jsonl` and `frames.jsonl`; no graph is loaded. Seconds are those of the
compile. A pass counts for the whole graph; the seconds of a kernel are shared by its nodes, so that
each module gets those of its own nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case_listing import CaseEntry, find_cases
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.watch.dump import (
    EVENTS,
    DumpedKernel,
    DumpedPass,
    DumpedStage,
    read_dumped,
)
from ctk.toolkit.watch.frame_log import FRAMES, MOST_FRAMES, DumpedFrame

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One compiled graph.

    Attributes:
        case: Its case on disk.
        seconds: Of its passes and kernels.
    """

    case: CaseEntry
    passes: tuple[DumpedPass, ...] = field(repr=False)
    kernels: tuple[DumpedKernel, ...] = field(repr=False)
    stages: tuple[DumpedStage, ...] = field(repr=False)

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in (*self.passes, *self.kernels))


@dataclass(frozen=True, slots=True)
class Fallback:
    """A kernel that another code generator made, because the first ones did not take the graph."""

    case: Path
    kernel: str
    reason: str


@dataclass(frozen=True, slots=True)
class GraphBreak:
    """A line of the program that breaks a graph.

    Attributes:
        place: `FILE:LINE`; the first line of the function if nothing of it is left to compile.
        reason: Empty if Dynamo gives none, as for a branch on the value of a tensor.
        count: Number of compiles that it split.
    """

    place: str
    function: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class Recompiled:
    """A function, or the rest of one, that was compiled more than once.

    Attributes:
        guards: The failed guards, by the number of compiles.
    """

    place: str
    function: str
    guards: tuple[tuple[str, int], ...]
    seconds: float

    @property
    def count(self) -> int:
        return sum(count for _, count in self.guards)


@dataclass(frozen=True, slots=True)
class Spent:
    """The seconds of a pass, kernel or module over all graphs.

    Attributes:
        count: Runs of the pass or kernel; calls in the captured graphs for a module.
        changes: Rewrites of the pass; nodes of the kernels for the others.
    """

    name: str
    count: int
    changes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DumpIndex:
    """All processes below a dump folder; costs with the most seconds first.

    Attributes:
        cut: The omissions, a sentence each.
    """

    graphs: tuple[GraphEntry, ...]
    fallbacks: tuple[Fallback, ...]
    breaks: tuple[GraphBreak, ...]
    recompiles: tuple[Recompiled, ...]
    by_pass: tuple[Spent, ...]
    by_kernel: tuple[Spent, ...]
    by_module: tuple[Spent, ...]
    cut: tuple[str, ...] = ()

    @property
    def failing(self) -> tuple[GraphEntry, ...]:
        """The graphs with a recorded failure."""
        return tuple(each for each in self.graphs if each.case.failure is not None)

    @property
    def seconds(self) -> float:
        """The seconds of all passes and kernels."""
        return sum(each.seconds for each in self.graphs)


def read_dump_index(root: Path) -> DumpIndex:
    """Return the index of a dump folder, which may be damaged or still be written."""
    reader = _Reader()
    walk = Walk(root)
    graphs = [reader.graph(entry) for entry in find_cases(walk)]
    if walk.is_cut:
        reader.cut.append(f"there are more than {walk.limit:,} folders: the others are left out")
    frames = [frame for process in reader.frames.values() for frame in process]
    return DumpIndex(
        graphs=tuple(graphs),
        fallbacks=tuple(_fallbacks(graphs)),
        breaks=tuple(_breaks(reader.frames.values())),
        recompiles=tuple(_recompiles(frames)),
        by_pass=_sum_up(_pass_costs(graphs)),
        by_kernel=_sum_up(_kernel_costs(graphs)),
        by_module=_sum_up(_module_costs(graphs)),
        cut=tuple(reader.cut),
    )


@dataclass(slots=True)
class _Reader:
    """Reads the files of a dump; a damaged one becomes a sentence of `cut`."""

    frames: dict[Path, list[DumpedFrame]] = field(default_factory=dict[Path, list[DumpedFrame]])
    cut: list[str] = field(default_factory=list[str])

    def graph(self, case: CaseEntry) -> GraphEntry:
        """Return the entry of a case."""
        process = case.path.parent
        if process not in self.frames:
            self.frames[process] = self._lines(DumpedFrame, process, FRAMES)
            if len(self.frames[process]) >= MOST_FRAMES:
                self.cut.append(f"{process.name}: only its first {MOST_FRAMES:,} frames are kept")
        return GraphEntry(
            case,
            tuple(self._lines(DumpedPass, case.path)),
            tuple(self._lines(DumpedKernel, case.path)),
            tuple(self._lines(DumpedStage, case.path)),
        )

    def _lines(self, kind: type[T], folder: Path, file: str = EVENTS) -> list[T]:
        try:
            return read_dumped(kind, folder, file)
        except (CaseError, OSError) as error:
            self.cut.append(one_line(f"{file} of {folder.name} is not read: {first_line(error)}"))
            return []


def _fallbacks(graphs: Iterable[GraphEntry]) -> Iterator[Fallback]:
    for graph in graphs:
        for kernel in graph.kernels:
            if kernel.reason:
                yield Fallback(graph.case.path, kernel.kernel, kernel.reason)


def _breaks(processes: Iterable[Sequence[DumpedFrame]]) -> Iterator[GraphBreak]:
    """Yield the graph breaks, the most frequent first.

    The rest of a function has the line; the frame compiled before it, with its beginning, has the
    reason. A frame with a reason and without a rest has the place of the function.
    """
    counts: Counter[tuple[str, str]] = Counter()
    reasons: dict[tuple[str, str], str] = {}
    for frames in processes:
        open_breaks: dict[str, DumpedFrame] = {}
        for frame in frames:
            if frame.resumed:
                key = frame.place, frame.function
                begun = open_breaks.pop(frame.function, None)
                counts[key] += 1
                reasons[key] = reasons.get(key) or "; ".join(begun.breaks if begun else ())
            if frame.breaks:
                open_breaks[frame.function] = frame
        for frame in open_breaks.values():
            key = frame.place, frame.function
            counts[key] += 1
            reasons[key] = "; ".join(frame.breaks)
    for (place, function), count in counts.most_common():
        yield GraphBreak(place, function, reasons[place, function], count)


def _recompiles(frames: Iterable[DumpedFrame]) -> Iterator[Recompiled]:
    """Yield the recompiled functions, the most often compiled first."""
    found: dict[tuple[str, str], list[DumpedFrame]] = defaultdict(list)
    for frame in frames:
        if frame.guard:
            found[frame.place, frame.function].append(frame)
    for (place, function), group in sorted(found.items(), key=lambda item: -len(item[1])):
        guards = Counter(frame.guard for frame in group).most_common()
        yield Recompiled(place, function, tuple(guards), sum(frame.seconds for frame in group))


def _pass_costs(graphs: Iterable[GraphEntry]) -> Iterator[Spent]:
    for graph in graphs:
        for each in graph.passes:
            yield Spent(each.pass_.partition("#")[0], 1, each.rewrites, each.seconds)


def _kernel_costs(graphs: Iterable[GraphEntry]) -> Iterator[Spent]:
    for graph in graphs:
        for each in graph.kernels:
            name = f"{graph.case.name or graph.case.path.name}: {each.kernel}"
            yield Spent(name, 1, len(each.nodes), each.seconds)


def _module_costs(graphs: Iterable[GraphEntry]) -> Iterator[Spent]:
    for graph in graphs:
        for stage in graph.stages:
            if stage.stage == "captured":
                yield from (Spent(name, calls, 0, 0.0) for name, calls in stage.modules.items())
        for kernel in graph.kernels:
            nodes = sum(kernel.modules.values())
            for name, count in kernel.modules.items():
                yield Spent(name, 0, count, kernel.seconds * count / nodes)


def _sum_up(costs: Iterable[Spent]) -> tuple[Spent, ...]:
    """Return one entry per name, the most seconds first."""
    found: dict[str, list[Spent]] = defaultdict(list)
    for each in costs:
        found[each.name].append(each)
    sums = (
        Spent(
            name,
            sum(each.count for each in parts),
            sum(each.changes for each in parts),
            round(sum(each.seconds for each in parts), 6),
        )
        for name, parts in found.items()
    )
    return tuple(sorted(sums, key=lambda each: (-each.seconds, each.name)))
