"""Notes from the working half of a command to its supervisor (supervise.py).

One JSON line per note, over a pipe, without an answer. Without a supervisor (the library, tests
that call a command in their own process) no note is sent.
"""

import contextlib
import json
import os
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path

_ALIVE_SECONDS = 0.2
"""Minimum time between signs of life: the pipe holds 64 KiB, and its reader may be asleep."""


@dataclass(frozen=True, slots=True)
class Work:
    """The running work on a saved case.

    Attributes:
        doing: `compiling it`; empty when it is done.
        command: The command to run next if the work kills this process; empty for a case that is
            not on disk.
    """

    doing: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """Limits at which the supervisor kills the working half.

    Attributes:
        seconds: Longest time without a sign of life.
        nbytes: Memory of the working half and its descendants; None: no limit.
        is_patient: Whether a program with slow steps gets more time (`silence_allowed`).
        repeats: Whether the supervisor may repeat the work in children.
    """

    seconds: float
    nbytes: int | None
    task: str = "a case that is not trusted"
    is_patient: bool = False
    repeats: bool = True


@dataclass(slots=True)
class Link:
    """The writing end of the notes.

    Attributes:
        descriptor: The pipe; None without a supervisor, and no note is sent.
        compiled: The limits of compiled programs in this process; None: no limits.
    """

    descriptor: int | None
    compiled: Watch | None = None
    _told_alive: float = 0.0
    _watch: Watch | None = None

    def note_started(self, command: str, *, as_json: bool) -> None:
        """Note that a command begins its work: a later end of the process is not a usage error."""
        self._tell("started", {"command": command, "as_json": as_json})

    def note_answered(self, exit_code: int) -> None:
        """Note that the answer was printed: the end of the process loses nothing."""
        self._tell("answered", exit_code)

    def note_work(self, case: str, work: "Work") -> None:
        """Note the work on a saved case: compile or call it; empty: it is done."""
        self._tell("work", {"case": case, "doing": work.doing, "command": work.command})

    def note_failure(self, name: str, folder: str, summary: str) -> None:
        """Note a failure of a watched script: the end of the process does not lose it."""
        self._tell("failure", {"name": name, "folder": folder, "summary": summary})

    def note_checked(self) -> None:
        """Note that a graph of a watched script was compared with eager."""
        self._tell("checked", None)

    def note_resumable(self, folder: str, command: str) -> None:
        """Note that the operation in a folder has a journal, and the command that resumes it."""
        self._tell("resumable", {"folder": folder, "command": command})

    def note_asking(self, name: str) -> None:
        """Note that a function of the user runs; empty: it has returned."""
        self._tell("asking", name)

    def set_limits(self, watch: Watch | None) -> Watch | None:
        """Set the limits (None clears them) and return the previous ones."""
        before, self._watch = self._watch, watch
        self._tell("watch", watch and asdict(watch))
        return before

    def note_writing(self, is_writing: bool) -> None:
        """Note that a result is being written, which has no limit; or that it is written."""
        self._tell("writing", is_writing)

    def note_alive(self) -> None:
        """Send a sign of life."""
        now = time.monotonic()
        if now - self._told_alive >= _ALIVE_SECONDS:
            self._told_alive = now
            self._tell("alive", None)

    def _tell(self, kind: str, value: object) -> None:
        if self.descriptor is None:
            return
        # Where the supervisor has ended, the work matters more than the note.
        with contextlib.suppress(OSError):
            os.write(self.descriptor, json.dumps({kind: value}).encode() + b"\n")


_LINKS: dict[int, Link] = {}
"""The link of a process to its supervisor, by process id: a fork by the user's program has none."""


def set_link(link: Link) -> None:
    """Give this process a link to its supervisor."""
    _LINKS[os.getpid()] = link


def find_link() -> Link | None:
    """Return the link of this process to its supervisor; None without one."""
    return _LINKS.get(os.getpid())


def own_link() -> Link:
    """Return the link of this process; without a supervisor, a link that sends nothing."""
    return find_link() or Link(None)


def report_alive() -> None:
    """Send a sign of life to the supervisor."""
    own_link().note_alive()


def report_resumable(folder: Path, command: str) -> None:
    """Send the supervisor the folder to resume and the command that does."""
    own_link().note_resumable(str(folder.absolute()), command)


@contextlib.contextmanager
def report_work(case: Path, doing: str, command: str) -> Generator[None]:
    """Name the work of the block to the supervisor, in case it kills this process."""
    link, name = own_link(), str(case.absolute())
    link.note_work(name, Work(doing, command))
    try:
        yield
    finally:
        link.note_work(name, Work(""))


@contextlib.contextmanager
def report_function(name: str) -> Generator[None]:
    """Name the user function that runs in the block to the supervisor."""
    link = own_link()
    link.note_asking(name)
    try:
        yield
    finally:
        link.note_asking("")


@contextlib.contextmanager
def apply_limits(watch: Watch | None) -> Generator[None]:
    """Set limits for the block, at which the supervisor, if there is one, kills this process."""
    link = own_link()
    before = link.set_limits(watch) if watch is not None else None
    try:
        yield
    finally:
        if watch is not None:
            link.set_limits(before)


@contextlib.contextmanager
def set_compiled_limits(watch: Watch | None) -> Generator[None]:
    """Set the limits that `limit_compiled` applies to compiled programs inside the block."""
    link = own_link()
    before, link.compiled = link.compiled, watch
    try:
        yield
    finally:
        link.compiled = before


def limit_compiled() -> contextlib.AbstractContextManager[None]:
    """Return a context with the limits of `set_compiled_limits`, to compile or call in."""
    return apply_limits(own_link().compiled)


@dataclass(slots=True)
class Notes:
    """All notes so far, as the supervisor reads them.

    Attributes:
        exit_code: The exit code of its answer; None before the answer was printed.
        failures: Failures of a watched script: name, folder, summary.
        checked: How often a graph of a watched script was compared with eager.
        asking: The running function of the user; empty: none.
        watch_at: The time at which they were set (`time.monotonic`).
        alive_at: The time of the last note (`time.monotonic`).
        slowest_seconds: The longest silence without limits.
    """

    command: str | None = None
    as_json: bool = False
    exit_code: int | None = None
    works: dict[str, Work] = field(default_factory=dict[str, Work])
    failures: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    checked: int = 0
    asking: str = ""
    resumable: str | None = None
    go_on: str = ""
    is_writing: bool = False
    watch: Watch | None = None
    watch_at: float = 0.0
    alive_at: float = field(default_factory=time.monotonic)
    slowest_seconds: float = 0.0
    _rest: bytes = b""

    def read(self, descriptor: int) -> None:
        """Read all notes in the pipe."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    with contextlib.suppress(ValueError):  # written by the user's program
                        self._take(json.loads(line))

    def _take(self, note: dict[str, object]) -> None:
        now = time.monotonic()
        if self.watch is None:
            self.slowest_seconds = max(self.slowest_seconds, now - self.alive_at)
        self.alive_at = now
        match note:
            case {"started": {"command": str(command), "as_json": bool(as_json)}}:
                self.command, self.as_json = command, as_json
            case {"answered": int(exit_code)}:
                self.exit_code = exit_code
            case {"work": {"case": str(case), "doing": str(doing), "command": str(command)}}:
                self.works.pop(case, None)
                self.works[case] = Work(doing, command)
            case {"failure": {"name": str(name), "folder": str(folder), "summary": str(summary)}}:
                self.failures.append((name, folder, summary))
            case {"checked": None}:
                self.checked += 1
            case {"asking": str(name)}:
                self.asking = name
            case {"resumable": {"folder": str(folder), "command": str(command)}}:
                self.resumable, self.go_on = folder, command
            case {
                "watch": {
                    "seconds": float(seconds),
                    "nbytes": int() | None as nbytes,
                    "task": str(task),
                    "is_patient": bool(is_patient),
                    "repeats": bool(repeats),
                }
            }:
                self.watch_at = now
                self.watch = Watch(seconds, nbytes, task, is_patient, repeats)
            case {"watch": None}:
                self.watch = None
            case {"writing": bool(is_writing)}:
                self.is_writing = is_writing
            case _:
                pass
