"""Progress on stderr: a live view on a terminal (`live_view.py`), plain lines in a log.

A log gets one line per new message, and for counts at most one line per `LOG_SECONDS`, so that
hours of work do not fill it. A dumb terminal, `NO_COLOR` and `--json` also get lines.
"""

import contextlib
import io
import os
import sys
import time
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, Protocol, TextIO

from ctk.compiler.errors import StorageError, count_of
from ctk.toolkit.cli.shell.streams import write_text_safely
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.processes.link import report_alive

if TYPE_CHECKING:
    from ctk.toolkit.reduce.progress import Progress as Reduction

LOG_SECONDS = 5.0

How = Literal["live", "lines", "nothing"]
"""Progress as a live view, as lines, or not at all; the stream may allow less."""

_HOW: ContextVar[How] = ContextVar("how", default="live")
"""How this command was asked to tell it."""


class Reporter(Say, Protocol):
    """Reports the progress of a command."""

    def reduction(self, state: "Reduction") -> None:
        """Tell how far a reduction is."""
        ...


@contextlib.contextmanager
def progress(stream: TextIO | None = None) -> Generator[Reporter]:
    """Yield a reporter that writes to `stream` (stderr).

    Of a live view the last state of a reduction stays on the screen.
    """
    out, how = stream or sys.stderr, _HOW.get()
    if how == "nothing":
        yield LogReporter(io.StringIO())
    elif how == "lines" or not can_be_live(out):
        yield LogReporter(out)
    else:
        from ctk.toolkit.cli.shell.live_view import live_progress

        with live_progress(out) as report:
            yield report


def can_be_live(out: TextIO) -> bool:
    """Return whether a stream is a terminal that moves its cursor, and whose user wants that."""
    is_plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    return out.isatty() and not is_plain


@contextlib.contextmanager
def progress_told(how: How) -> Generator[None]:
    """Tell progress in a certain way while the block runs."""
    token = _HOW.set(how)
    try:
        yield
    finally:
        _HOW.reset(token)


class LogReporter:
    """Writes lines: `ctk: message (3/12, about 40 s left)`."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        self._clock = clock
        self._message = ""
        self._started = self._written = clock()

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        report_alive()
        now = self._clock()
        is_new = message != self._message
        if is_new:
            self._message, self._started = message, now
        if is_new or now - self._written >= LOG_SECONDS:
            self._written = now
            with contextlib.suppress(StorageError):  # the reader is gone: the work continues
                write_text_safely(
                    self._out, f"ctk: {message}{self._count(done, total, now - self._started)}\n"
                )

    def reduction(self, state: "Reduction") -> None:
        """Write a line for each smaller case, and now and then."""
        smaller = count_of(state.call_nodes, "call node")
        message = f"minifying: {state.call_nodes_before} -> {smaller}"
        self(message, state.questions, state.budget.questions)

    @staticmethod
    def _count(done: int | None, total: int | None, seconds: float) -> str:
        if done is None:
            return ""
        if not total:
            return f" ({done})"
        left = f", about {seconds / done * (total - done):.0f} s left" if done and seconds else ""
        return f" ({done}/{total}{left})"
