"""Progress on stderr: a bar with an ETA on a terminal, plain lines in a log.

A log gets a line per message that is new, and for counts at most one line per `LOG_SECONDS`, so
that hours of work do not fill it.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ctk.compiler.errors import StorageError
from ctk.toolkit.cli.streams import written
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.processes.link import tell_alive

if TYPE_CHECKING:
    from ctk.toolkit.reduce.problem import Progress as Reduction

LOG_SECONDS = 5.0

_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether this command was asked to tell nothing on the way."""


class Reporter(Say, Protocol):
    """Tells how far a command is."""

    def reduction(self, state: "Reduction") -> None:
        """Tell how far a reduction is."""
        ...


@contextlib.contextmanager
def progress(stream: TextIO | None = None) -> Generator[Reporter]:
    """Yield a reporter that writes to `stream` (stderr); the bar disappears at the end."""
    out = stream or sys.stderr
    if _QUIET.get():
        yield LogReporter(io.StringIO())
        return
    if not out.isatty() or os.environ.get("TERM") == "dumb":
        yield LogReporter(out)
        return
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=Console(file=out),
        transient=True,
    ) as bar:
        yield BarReporter(bar)


@contextlib.contextmanager
def quiet_progress(is_quiet: bool) -> Generator[None]:
    """Tell nothing on the way while the block runs, if that is wanted."""
    token = _QUIET.set(is_quiet)
    try:
        yield
    finally:
        _QUIET.reset(token)


def reduction_line(state: "Reduction") -> str:
    """Return where a reduction stands; its end is unknown unless the questions are limited."""
    return f"minifying: {state.call_nodes_before} -> {state.call_nodes} call nodes, {state.step}"


class BarReporter:
    """Moves one bar; without a total it only pulses."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        tell_alive()
        self._bar.update(self._task, description=message, completed=done or 0, total=total)

    def reduction(self, state: "Reduction") -> None:
        """Move the bar by the questions asked."""
        self(reduction_line(state), state.questions, state.budget.questions)


class LogReporter:
    """Writes lines: `ctk: message (3/12, about 40 s left)`."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._message = ""
        self._started = self._written = clock()

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        tell_alive()
        now = self._clock()
        is_new = message != self._message
        if is_new:
            self._message, self._started = message, now
        if is_new or now - self._written >= LOG_SECONDS:
            self._written = now
            with contextlib.suppress(StorageError):  # nobody reads it: the work goes on
                written(
                    self._out, f"ctk: {message}{self._count(done, total, now - self._started)}\n"
                )

    def reduction(self, state: "Reduction") -> None:
        """Write a line for each smaller case, and now and then."""
        message = f"minifying: {state.call_nodes_before} -> {state.call_nodes} call nodes"
        self(message, state.questions, state.budget.questions)

    @staticmethod
    def _count(done: int | None, total: int | None, seconds: float) -> str:
        if done is None:
            return ""
        if not total:
            return f" ({done})"
        left = f", about {seconds / done * (total - done):.0f} s left" if done and seconds else ""
        return f" ({done}/{total}{left})"
