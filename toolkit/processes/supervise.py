"""Split a command into two processes: a child does the work, and the parent observes its end.

    half = fork_half(...)       before torch is imported: it costs a few milliseconds
      child   None is returned, and the command runs
      parent  an `End` is returned when the child has ended

Both are in one process group, so that Ctrl-C and Ctrl-Z of a terminal reach both. The parent

1. passes on a signal that was sent to it alone (`kill PID`), exactly once;
2. stops when the child stops, and resumes it;
3. kills the child and its descendants if they do not end after an interrupt or after the answer
   (`grace_seconds`);
4. kills them if they pass a limit that the child has set (link.py, `Watch`).

The child dies with the parent (Linux).
"""

import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ctk.compiler.errors import StorageError
from ctk.compiler.usercode.process_name import process_name
from ctk.toolkit.processes.forks import flush_streams, fork
from ctk.toolkit.processes.groups import adopt_orphans, die_with
from ctk.toolkit.processes.interrupts import ENDING
from ctk.toolkit.processes.link import Link, Notes, Watch, set_link
from ctk.toolkit.processes.memory import held_nbytes
from ctk.toolkit.processes.scratch import OWNER, scratch_root
from ctk.toolkit.processes.signals import hide_from_forks
from ctk.toolkit.processes.tree import find_descendants, kill_descendants

_PASSED_ON = (
    "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTSTP", "SIGCONT",
)  # fmt: skip
_POLL_SECONDS = 0.5
_WATCH_SECONDS = 0.25
"""How often a half with limits is checked: memory can grow by gigabytes a second."""

PATIENCE = 4.0
"""How many times as long as any step before it a step of a patient watch may take."""

_ECHO_SECONDS = 0.1
"""How long a signal to the whole group may take to reach the child as well."""

_FROM_A_PROCESS = 0
"""`si_code` of a signal that a process sent is at most this; the terminal's is above."""


@dataclass(frozen=True, slots=True)
class End:
    """How the working half ended.

    Attributes:
        status: Its exit status; a negative one is the signal that killed it.
        gave_up: The parent killed it: it had not ended in time after a signal or its answer.
        exceeded: The limit that it had set and for which the parent killed it.
        watched_seconds: How long that limit had been set.
    """

    status: int
    notes: Notes
    signals: frozenset[int]
    gave_up: bool
    pid: int
    exceeded: Literal["time", "memory"] | None = None
    watched_seconds: float = 0.0


@dataclass(slots=True)
class _Half:
    pid: int
    notes_pipe: int
    echo_pipe: int
    grace_seconds: float | None
    notes: Notes = field(default_factory=Notes)
    signals: set[int] = field(default_factory=set[int])
    echoes: Counter[int] = field(default_factory=Counter[int])
    ending_since: float | None = None
    gave_up: bool = False
    exceeded: Literal["time", "memory"] | None = None
    exceeded_at: float = 0.0


def can_supervise() -> bool:
    """Return whether this system reports the sender of a signal (macOS does not)."""
    return hasattr(signal, "sigtimedwait") and Path("/proc/self/stat").exists()


def fork_half(*, grace_seconds: float | None, cleans_up: bool) -> End | None:
    """Fork; return None in the child, which works, and its end in the parent.

    Args:
        grace_seconds: Longest silence of the child after a signal that ends it, and longest life
            after its answer; None: no limit.
        cleans_up: Whether the processes of the child end with it, and carry the mark `CTK_OWNER`.
    """
    notes_in, notes_out = os.pipe()
    echo_in, echo_out = os.pipe()
    for descriptor in (notes_in, notes_out, echo_in, echo_out):
        os.set_blocking(descriptor, False)
    if cleans_up:
        adopt_orphans()
    parent, watched, others = os.getpid(), _find_watched_signals(), _present_children()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    flush_streams()
    pid = fork()
    if pid == 0:
        os.close(notes_in)
        os.close(echo_in)
        die_with(parent)
        signal.set_wakeup_fd(echo_out, warn_on_full_buffer=False)
        hide_from_forks(echo_out)
        set_link(Link(notes_out))
        if cleans_up:
            with contextlib.suppress(
                StorageError
            ):  # raised again by the first caller that needs it
                scratch_root()
            os.environ[OWNER] = process_name()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return None
    os.close(notes_out)
    os.close(echo_out)
    try:
        return _attend(_Half(pid, notes_in, echo_in, grace_seconds), watched)
    finally:
        if cleans_up:
            kill_descendants(parent, spare=others)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(notes_in)
        os.close(echo_in)


def _present_children() -> list[int]:
    """Return the children of the shell that became this process (`server & exec ctk ...`)."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # the usual case; skips reading all processes
        return []
    return find_descendants(os.getpid())


def die_of(number: int) -> None:
    """End this process by the signal that ended its working half."""
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)


def _find_watched_signals() -> set[signal.Signals]:
    """Return the signals to wait for; an ignored one (`nohup`) stays ignored."""
    named = {getattr(signal, name) for name in _PASSED_ON}
    heard = {number for number in named if signal.getsignal(number) is not signal.SIG_IGN}
    return heard | {signal.SIGCHLD}


def _attend(half: _Half, watched: set[signal.Signals]) -> End:
    while True:
        pid, status = os.waitpid(half.pid, os.WNOHANG | os.WUNTRACED)
        if pid and os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)  # the shell sees this process stop, and resumes it
            os.kill(half.pid, signal.SIGCONT)
            half.notes.alive_at = (
                time.monotonic()
            )  # the time in which it was stopped does not count
            continue
        half.notes.read(half.notes_pipe)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            signals = frozenset(half.signals)
            waited = half.exceeded_at - half.notes.watch_at if half.exceeded else 0.0
            return End(code, half.notes, signals, half.gave_up, half.pid, half.exceeded, waited)
        if _is_grace_over(half):
            half.gave_up = True
            _kill(half)
        elif exceeded := _find_exceeded_limit(half):
            half.exceeded, half.exceeded_at = exceeded, time.monotonic()
            _kill(half)
        info = signal.sigtimedwait(watched, _WATCH_SECONDS if half.notes.watch else _POLL_SECONDS)
        if info is not None and info.si_signo == signal.SIGCONT:
            half.notes.alive_at = time.monotonic()  # the whole group was stopped
        if info is not None and info.si_signo != signal.SIGCHLD:
            _pass_on(half, info.si_signo, alone=info.si_code <= _FROM_A_PROCESS)


def _kill(half: _Half) -> None:
    kill_descendants(half.pid)
    os.kill(half.pid, signal.SIGKILL)


def _pass_on(half: _Half, number: int, *, alone: bool) -> None:
    """Send a signal to the child, unless the whole group received it."""
    half.signals.add(number)
    if number in ENDING:
        half.ending_since = time.monotonic()
    if alone and not _has_echoed(half, number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(half.pid, number)
    half.echoes[number] -= 1  # the echo of this signal


def _has_echoed(half: _Half, number: int) -> bool:
    """Return whether the child has caught a signal that this process did not send."""
    deadline = time.monotonic() + _ECHO_SECONDS
    while True:
        with contextlib.suppress(BlockingIOError):
            half.echoes.update(os.read(half.echo_pipe, 1 << 12))
        if half.echoes[number] > 0:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)


def _is_grace_over(half: _Half) -> bool:
    """Return whether the grace period of the child is over; writing a result has no limit."""
    if half.grace_seconds is None or half.gave_up:
        return False
    since = half.ending_since
    if half.notes.exit_code is not None and since is None:
        since = half.notes.alive_at
    if since is None or half.notes.is_writing:
        return False
    return time.monotonic() - max(since, half.notes.alive_at) > half.grace_seconds


def silence_allowed(notes: Notes, watch: Watch) -> float:
    """Return the longest allowed silence of a working half, in seconds."""
    if not watch.is_patient:
        return watch.seconds
    return max(watch.seconds, PATIENCE * notes.slowest_seconds)


def _find_exceeded_limit(half: _Half) -> Literal["time", "memory"] | None:
    """Return the limit that the child has set and now passed."""
    watch, notes = half.notes.watch, half.notes
    is_ending = half.gave_up or half.exceeded or half.ending_since is not None
    if watch is None or half.grace_seconds is None or is_ending or notes.exit_code is not None:
        return None
    if not notes.is_writing and time.monotonic() - notes.alive_at > silence_allowed(notes, watch):
        return "time"
    if watch.nbytes and held_nbytes((half.pid, *find_descendants(half.pid))) > watch.nbytes:
        return "memory"
    return None
