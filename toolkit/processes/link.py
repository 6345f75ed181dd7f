"""What the working half of a command tells the half that watches over it (supervise.py).

One JSON line per note, over a pipe; nobody waits for an answer. Without a supervisor (the library,
tests that call a command in their own process) nothing is told.
"""

import contextlib
import json
import os
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path

_ALIVE_SECONDS = 0.2
"""Signs of life are told no more often: the pipe holds 64 KiB, and its reader may be asleep."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a saved case does.

    Attributes:
        doing: `compiling it`; empty when that is done.
        command: What takes it further if that kills us; empty for a case that is not on disk.
    """

    doing: str
    command: str = ""


@dataclass(frozen=True, slots=True)
class Watch:
    """What ends the working half: nothing that it runs is worth waiting for any longer.

    Attributes:
        seconds: Longest without a sign of life.
        nbytes: What it may hold with all that it has started; None: any.
        what: What runs meanwhile, for messages.
        is_patient: Whether a program whose steps take long anyway may take longer.
        repeats: Whether the same may be asked once more in children.
    """

    seconds: float
    nbytes: int | None
    what: str = "a case that is not trusted"
    is_patient: bool = False
    repeats: bool = True


@dataclass(slots=True)
class Link:
    """The writing end.

    Attributes:
        descriptor: Of the pipe; does not block.
        compiled: The limits of what is compiled in this process; None: it has none.
    """

    descriptor: int
    compiled: Watch | None = None
    _told_alive: float = 0.0
    _watch: Watch | None = None

    def started(self, command: str, *, as_json: bool) -> None:
        """A command begins its work: from now on the end of the process is no usage error."""
        self._tell("started", {"command": command, "as_json": as_json})

    def answered(self, exit_code: int) -> None:
        """The answer has been printed: nothing is lost any more."""
        self._tell("answered", exit_code)

    def work(self, case: str, work: "Work") -> None:
        """A saved case is at work: it is being compiled, or called; empty: no longer."""
        self._tell("work", {"case": case, "doing": work.doing, "command": work.command})

    def resumable(self, folder: str, command: str) -> None:
        """There is a journal in a folder: `--resume`, and this command, go on there."""
        self._tell("resumable", {"folder": folder, "command": command})

    def asking(self, name: str) -> None:
        """A function of the user is being asked; empty: it has answered."""
        self._tell("asking", name)

    def watch(self, watch: Watch | None) -> Watch | None:
        """From now on there are such limits, None: no longer; return those of before."""
        before, self._watch = self._watch, watch
        self._tell("watch", watch and asdict(watch))
        return before

    def writing(self, is_writing: bool) -> None:
        """A result is being written, however long that takes; or it is written."""
        self._tell("writing", is_writing)

    def alive(self) -> None:
        """Work goes on."""
        now = time.monotonic()
        if now - self._told_alive >= _ALIVE_SECONDS:
            self._told_alive = now
            self._tell("alive", None)

    def _tell(self, kind: str, value: object) -> None:
        with contextlib.suppress(OSError):  # nobody listens: the work is worth more than the note
            os.write(self.descriptor, json.dumps({kind: value}).encode() + b"\n")


_LINKS: dict[int, Link] = {}
"""The link of a process to its supervisor, by process id: a fork of the user's has none."""


def set_link(link: Link) -> None:
    """Give this process a link to its supervisor."""
    _LINKS[os.getpid()] = link


def find_link() -> Link | None:
    """Return the link of this process to its supervisor; None where there is none."""
    return _LINKS.get(os.getpid())


def tell_alive() -> None:
    """Tell the supervisor, if there is one, that work goes on."""
    link = find_link()
    if link is not None:
        link.alive()


def tell_resumable(folder: Path, command: str) -> None:
    """Tell the supervisor, if there is one, where and how to go on if this process ends."""
    link = find_link()
    if link is not None:
        link.resumable(str(folder.absolute()), command)


@contextlib.contextmanager
def at_work(case: Path, doing: str, command: str) -> Generator[None]:
    """Tell the supervisor, if there is one, what it was that killed us inside the `with` block.

    Args:
        case: The folder of the saved case.
        doing: `compiling it`.
        command: What takes the case further; empty for one that is not on disk.
    """
    link = find_link()
    if link is None:
        yield
        return
    link.work(str(case.absolute()), Work(doing, command))
    try:
        yield
    finally:
        link.work(str(case.absolute()), Work(""))


@contextlib.contextmanager
def asking(name: str) -> Generator[None]:
    """Tell the supervisor, if there is one, which function of the user is asked in the block."""
    link = find_link()
    if link is None:
        yield
        return
    link.asking(name)
    try:
        yield
    finally:
        link.asking("")


@contextlib.contextmanager
def watched(watch: Watch | None) -> Generator[None]:
    """Have the supervisor, if there is one, end this process by some limits inside the block."""
    link = find_link()
    if link is None or watch is None:
        yield
        return
    before = link.watch(watch)
    try:
        yield
    finally:
        link.watch(before)


@contextlib.contextmanager
def compiled_limited(watch: Watch | None) -> Generator[None]:
    """Give what is compiled and called inside the block some limits (`compiled_watched`)."""
    link = find_link()
    if link is None:
        yield
        return
    before, link.compiled = link.compiled, watch
    try:
        yield
    finally:
        link.compiled = before


def compiled_watched() -> contextlib.AbstractContextManager[None]:
    """Return a context for compiling or calling what is under test: it has the limits for that."""
    link = find_link()
    return watched(link.compiled if link is not None else None)


@dataclass(slots=True)
class Notes:
    """What was told until now, read by the supervisor.

    Attributes:
        command: Which command works; None before it starts.
        as_json: Whether it was asked for JSON.
        exit_code: Of its answer; None before it was printed.
        works: What each saved case was doing last.
        asking: The function of the user that is being asked; empty: none.
        resumable: The folder in which `--resume` can go on.
        go_on: The command that does.
        is_writing: Whether a result is being written.
        watch: The limits that end it; None: there are none.
        watch_at: Since when there are these.
        alive_at: When something was told last (`time.monotonic`).
        slowest_seconds: The longest that it was silent without limits.
    """

    command: str | None = None
    as_json: bool = False
    exit_code: int | None = None
    works: dict[str, Work] = field(default_factory=dict[str, Work])
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
        """Take in whatever the pipe holds."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(descriptor, 1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    with contextlib.suppress(ValueError):  # not ours: a program may write anywhere
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
            case {"asking": str(name)}:
                self.asking = name
            case {"resumable": {"folder": str(folder), "command": str(command)}}:
                self.resumable, self.go_on = folder, command
            case {
                "watch": {
                    "seconds": float(seconds),
                    "nbytes": int() | None as nbytes,
                    "what": str(what),
                    "is_patient": bool(is_patient),
                    "repeats": bool(repeats),
                }
            }:
                self.watch_at = now
                self.watch = Watch(seconds, nbytes, what, is_patient, repeats)
            case {"watch": None}:
                self.watch = None
            case {"writing": bool(is_writing)}:
                self.is_writing = is_writing
            case _:
                pass
