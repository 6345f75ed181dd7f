"""The record of a watched process: its options, dump folder, graphs and failures."""

import itertools
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict, TypeVar, Unpack, get_args

import torch

from ctk.compiler.errors import ConfigError, any_of, nearest, not_taken
from ctk.compiler.options.choices import Check, OnWatchedFailure, WatchedInputs
from ctk.compiler.options.conditions import Condition, parse_conditions
from ctk.compiler.options.environment import environment_dump, parse_size, read_environment
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import claim_folder, make_folder
from ctk.toolkit.processes.link import own_link
from ctk.toolkit.watch.child_start import note
from ctk.toolkit.watch.dump import file_stem, run_guarded
from ctk.toolkit.watch.frame_log import FrameLog
from ctk.toolkit.watch.quota import prune, write_marker
from ctk.toolkit.watch.ring import Ring

T = TypeVar("T")

logger = logging.getLogger("ctk")

CallPart = Literal["whole", "by_graph", "skipped"]
"""How a call was compared with eager: end to end, only its graphs, or not."""

DEFAULT_FOLDER = Path("ctk_dumps")
"""The dump folder of a check without a named folder."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of the hooks, named like their environment variables.

    Attributes:
        dump: Folder of the dumps of all processes.
        check: Compare with eager at the first call: nothing, the results, or every pass.
        on_failure: The effect of a failure on the running program.
        quota_nbytes: Limit of `dump`; None: no limit.
        inputs: The values that cases keep.
        calls: Number of first calls of each compiled callable that are compared with eager, if
            `check` is on: end to end, and graph by graph.
        check_every: Of the later calls of each graph every N-th is compared; 0: none.
        check_when: The conditions on results after which a later call is compared, as text.
        ring: Number of last calls of each graph that are kept on disk; 0: none.
        target: The target spec that compiles in place of every backend that has a name; empty: the
            program's own backends compile.
    """

    dump: Path = DEFAULT_FOLDER
    check: Check = "off"
    on_failure: OnWatchedFailure = "raise"
    inputs: WatchedInputs = "recipe"
    quota_nbytes: int | None = None
    calls: int = 1
    check_every: int = 0
    check_when: str = ""
    ring: int = 0
    target: str = ""

    @property
    def leaves_errors(self) -> bool:
        """Whether the program gets an exception of the compiler as without ctk."""
        return self.on_failure in ("raise", "record")


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the program, a test: the first calls of each function in it are compared.

    Attributes:
        target: Replaces `WatchOptions.target` in it; empty: does not.
        config: Added to the options of each compile in it.
        is_off: Whether it is not watched.
    """

    name: str = ""
    target: str = ""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    is_off: bool = False


NO_SCOPE = Scope()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure of a watched compile or call.

    Attributes:
        advice: The step before a command can compile the case; empty if there is none.
        signature: None if only the process that saw it has one, a child without a case.
        target: The target that compiled; empty if only that process knows it.
        place: `FILE:LINE` of the first wrong result in the program; empty if unknown.
    """

    graph: str
    folder: Path
    summary: str
    is_saved: bool = True
    advice: str = ""
    signature: Signature | None = None
    target: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Missing:
    """A part of a dump that could not be written.

    Attributes:
        graph: The name of the graph; empty if it was neither watched nor checked.
        part: The part: `case` or `events`; `everything` for a graph that was not watched.
        why: The exception in one line.
    """

    graph: str
    part: Literal["case", "events", "everything"]
    why: str


@dataclass(slots=True)
class CallCounts:
    """Calls of compiled callables by the way in which they were compared with eager.

    Attributes:
        whole: Number of calls compared end to end.
        by_graph: Reasons and numbers of calls of which only the graphs were compared.
        skipped: Reasons and numbers of calls that were not compared.
    """

    whole: int = 0
    by_graph: Counter[str] = field(default_factory=Counter[str])
    skipped: Counter[str] = field(default_factory=Counter[str])

    @property
    def made(self) -> int:
        """The number of all calls."""
        return self.whole + self.by_graph.total() + self.skipped.total()

    def add_calls(self, part: CallPart, why: str = "", number: int = 1) -> int:
        """Count calls of one kind; return how many there are now."""
        if part == "whole":
            self.whole += number
            return self.whole
        counter = self.by_graph if part == "by_graph" else self.skipped
        counter[why] += number
        return counter[why]

    def add(self, other: "CallCounts") -> None:
        """Add the calls of another process."""
        self.whole += other.whole
        self.by_graph += other.by_graph
        self.skipped += other.skipped


@dataclass(slots=True)
class WatchSession:
    """The record of one watched process; thread-safe.

    Attributes:
        checked: Number of calls of graphs that were compared with eager.
        unchecked: Why a call of a graph was not, by its name.
        calls: The calls of compiled callables.
        book: Folder of the run whose book gets each of these (children.py), if any.
        scope: The part of the program that runs now.
        target: The target of the last graph or call that was watched.
    """

    options: WatchOptions
    failures: list[Failure] = field(default_factory=list[Failure])
    graphs: int = 0
    missing: list[Missing] = field(default_factory=list[Missing])
    checked: int = 0
    unchecked: dict[str, str] = field(default_factory=dict[str, str])
    calls: CallCounts = field(default_factory=CallCounts)
    book: str = ""
    scope: Scope = NO_SCOPE
    target: str = ""
    _folder: Path | None = None
    _ring: Ring | None = None
    _pid: int = 0
    _warned_quota: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _frames: FrameLog = field(default_factory=FrameLog, repr=False)

    @property
    def folder(self) -> Path:
        """The folder of this process, created on first use; a forked child gets its own."""
        with self._lock:
            if self._folder is None or self._pid != os.getpid():
                self._folder, self._pid = new_folder(self.options.dump), os.getpid()
            return self._folder

    @property
    def ring(self) -> Ring | None:
        """The ring of this process, opened on first use; None without `CTK_RING`."""
        if not self.options.ring:
            return None
        folder = self.folder / "ring"
        with self._lock:
            if self._ring is None or self._ring.folder != folder:
                self._ring = Ring.open(folder, self.options.ring, self.options.quota_nbytes)
            return self._ring

    @property
    def made_folder(self) -> Path | None:
        """The folder of this process if it was created; on a full disk it is not."""
        return self._folder if self._pid == os.getpid() else None

    def add_missing(self, missing: Missing) -> None:
        """Record a part of a dump that could not be written."""
        with self._lock:
            self.missing.append(missing)
        self._note("missing", [missing.graph, missing.part, missing.why])

    def next_graph(self, target: str) -> str:
        """Return the name of the next graph: `graph0`, `graph1`, …"""
        with self._lock:
            self.target = target
            number, self.graphs = self.graphs, self.graphs + 1
        self._note("graph", f"graph{number}")
        return f"graph{number}"

    def note_frames(self) -> None:
        """Write the frames that Dynamo has compiled since."""
        folder = self.made_folder
        if folder is not None and folder.is_dir():
            run_guarded(lambda: self._frames.write(folder), "writing the frames of Dynamo")

    def add_failure(self, failure: Failure) -> None:
        """Record a failure."""
        with self._lock:
            self.failures.append(failure)
        self._note("failure", [failure.graph, str(failure.folder), failure.summary, failure.advice])
        own_link().note_failure(failure.graph, str(failure.folder), failure.summary)

    def _note(self, event: str, value: object) -> None:
        if self.book:
            note(self.book, {event: value})

    def add_checked(self) -> None:
        """Count a call of a graph that was compared with eager."""
        with self._lock:
            self.checked += 1
        self._note("checked", 1)
        own_link().note_checked()

    def add_unchecked(self, graph: str, why: str) -> None:
        """Record why a call of a graph was not compared with eager."""
        with self._lock:
            self.unchecked[graph] = why

    def take_unchecked(self) -> dict[str, str]:
        """Return `unchecked`, and begin a new one."""
        with self._lock:
            taken, self.unchecked = self.unchecked, {}
        return taken

    def add_call(self, part: CallPart, why: str = "") -> None:
        """Count a call of a compiled callable.

        Of skipped calls the book gets a lower bound: the first, the second, the fourth, ...
        """
        with self._lock:
            number = self.calls.add_calls(part, why)
        if part != "skipped":
            self._note("call", [part, why, 1])
        elif number & (number - 1) == 0:
            self._note("call", [part, why, number - number // 2])

    def keep_quota(self) -> None:
        """Remove and log the oldest dumps if the quota is exceeded."""
        if self.options.quota_nbytes is not None:
            run_guarded(self._prune, "keeping the quota")

    def _prune(self) -> None:
        quota = self.options.quota_nbytes or 0
        removed, excess = prune(self.options.dump, quota, keep=self.folder)
        for dump, nbytes in removed.items():
            logger.warning("ctk: removed the old dump %s (%d bytes): quota", dump, nbytes)
        if excess and not self._warned_quota:
            self._warned_quota = True
            text = "ctk: the dumps in use exceed the quota of %d bytes by %d; none can be removed"
            logger.warning(text, quota, excess)


class WatchKeywords(TypedDict, total=False):
    """The options of the hooks as keywords; a missing one, or None, takes its default."""

    dump: str | Path | None
    check: Check | None
    on_failure: OnWatchedFailure | None
    inputs: WatchedInputs | None
    quota: int | str | None
    calls: int | None
    check_every: int | None
    check_when: str | None
    ring: int | None


class InstallKeywords(WatchKeywords, total=False):
    """The options of `install`."""

    target: str | None


def check_keywords(function: str, given: Iterable[str], *others: str) -> None:
    """Refuse an unknown option, in the name of the called function.

    Raises:
        TypeError: An option is unknown; the message suggests the nearest.
    """
    known = (*WatchKeywords.__annotations__, *others)
    for name in given:
        if name not in known:
            allowed = ", ".join(known)
            raise TypeError(
                f"{function}() has no option {name!r}{nearest(name, known)} ({allowed})"
            )


def watch_options(**given: Unpack[InstallKeywords]) -> WatchOptions:
    """Return the options of the hooks: an argument wins over its variable, that over the default.

    Raises:
        ConfigError: A value is not allowed; the message lists the allowed ones.
    """
    environment = read_environment()
    when = ",".join(map(str, _parse_when(given.get("check_when")) or environment.check_when))
    every = _check_count("check_every", given.get("check_every"), environment.check_every or 0)
    ring = _check_count("ring", given.get("ring"), environment.ring or 0)
    check = given.get("check") or environment.check or ("output" if every or when else "off")
    on_failure = given.get("on_failure") or environment.on_failure or "raise"
    named = given.get("inputs") or environment.inputs
    inputs = named or ("failing" if every or when or ring else "recipe")
    options = WatchOptions(
        dump=dump_folder(given.get("dump")).absolute(),
        check=_check_choice("check", check, Check),
        on_failure=_check_choice("on_failure", on_failure, OnWatchedFailure),
        inputs=_check_choice("inputs", inputs, WatchedInputs),
        quota_nbytes=_parse_quota(given.get("quota")) or environment.quota_nbytes,
        calls=_check_count("calls", given.get("calls"), 1),
        check_every=every,
        check_when=when,
        ring=ring,
        target=given.get("target") or "",
    )
    _refuse_contradictions(options)
    return options


def _refuse_contradictions(options: WatchOptions) -> None:
    """Refuse later checks without checks, and a ring of values that may not be kept.

    Raises:
        ConfigError: Both are set; the message names the two, and the change that helps.
    """
    if options.check == "off" and (options.check_every or options.check_when):
        raise ConfigError(
            "CTK_CHECK_EVERY and CTK_CHECK_WHEN (check_every, check_when) compare calls with eager,"
            " and CTK_CHECK=off (check) forbids that: leave CTK_CHECK out, or set it to output"
        )
    if options.ring and options.inputs in ("recipe", "none"):
        raise ConfigError(
            "CTK_RING (ring) keeps the values of inputs and weights, and CTK_INPUTS="
            f"{options.inputs} (inputs) forbids that: leave CTK_INPUTS out, or set it to failing "
            "or full"
        )


def dump_folder(named: str | Path | None = None) -> Path:
    """Return the dump folder: the named one, else `CTK_DUMP`, else `ctk_dumps`."""
    return Path(named).expanduser() if named else environment_dump() or DEFAULT_FOLDER


def new_folder(root: Path) -> Path:
    """Create and mark a folder of this process, rank and run: `train_rank1_4711_0`."""
    make_folder(root)
    script = Path(sys.argv[0] if sys.argv and sys.argv[0] else "python")
    script = script.parent if script.stem == "__main__" else script
    rank = _rank()
    parts = [file_stem(script.stem or "python"), rank and f"rank{rank}", str(os.getpid())]
    stem = "_".join(part for part in parts if part)
    folder = claim_folder(root / f"{stem}_{number}" for number in itertools.count())
    write_marker(folder)
    return folder


def _rank() -> str:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return str(torch.distributed.get_rank())
    rank = os.environ.get("RANK", "")
    return rank if rank.isdigit() else ""


def _check_choice(name: str, value: T, literal: object) -> T:
    allowed = get_args(literal)
    if value not in allowed:
        raise not_taken(name, value, any_of(allowed), nearest(str(value), allowed))
    return value


def _check_count(name: str, value: int | None, default: int) -> int:
    if value is not None and value < 0:
        raise not_taken(name, value, "a count from 0")
    return default if value is None else value


def _parse_when(text: str | None) -> tuple[Condition, ...]:
    try:
        return parse_conditions(text or "")
    except ValueError as error:
        raise not_taken("check_when", text, str(error)) from error


def _parse_quota(value: int | str | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_size(str(value))
    except ValueError as error:
        raise not_taken("quota", value, str(error)) from error
