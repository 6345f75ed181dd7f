"""The three standard streams of a command: open, able to take any text, and flushed at the end.

1. Closed before the start (`>&-`): no other file gets its number; writes to it are refused.
2. It cannot show a character (ASCII): that is written with a backslash, `\\xe9`.
3. stdout on a full disk, or a closed pipe: `write_text_safely` raises, and Python's flush at the
   end finds nothing left. Failed writes to stderr are dropped: the answer does not depend on them.

It writes no answer and decides no exit code (`entry.py` does).
"""

import contextlib
import io
import os
import sys
from typing import Any, TextIO, cast

from ctk.compiler.errors import StorageError
from ctk.toolkit.case.formats.scrub import without_secrets


class ClosedStream(io.TextIOBase):
    """Stands for a stream that was closed before the process started."""

    def write(self, s: str, /) -> int:
        """Refuse."""
        raise OSError("it was closed before ctk started")

    def fileno(self) -> int:
        raise io.UnsupportedOperation("fileno")


class LenientFile(io.FileIO):
    """A file that drops failed writes, for a stderr on a full disk."""

    def write(self, b: Any, /) -> int:
        """Write, or drop."""
        try:
            return super().write(b)
        except OSError:
            return memoryview(b).nbytes


def prepare_streams() -> None:
    """Open closed streams, and let stderr drop failed writes.

    The next opened file would get the number of a closed stream, and with it the output of C++.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            _open_nothing(descriptor)
    if cast("TextIO | None", sys.stdout) is None:
        sys.stdout = cast("TextIO", ClosedStream())
    if sys.stderr is sys.__stderr__:  # not a stream of a test
        sys.stderr = _lenient(2, getattr(sys.stderr, "encoding", None))


def _lenient(descriptor: int, encoding: str | None) -> TextIO:
    raw = LenientFile(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=True
    )


def write_text_safely(stream: TextIO, text: str) -> None:
    """Write a text without secrets, and flush it; characters that the stream lacks get a backslash.

    Raises:
        StorageError: It did not arrive: full disk, closed pipe, closed stream.
    """
    text = without_secrets(text)  # answers are pasted into reports
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except (OSError, ValueError) as error:  # ValueError: I/O operation on closed file
        raise StorageError(f"{type(error).__name__}: {error}") from error


def tell_line(text: str) -> None:
    """Write a line to stderr; a failed write is dropped."""
    with contextlib.suppress(StorageError):
        write_text_safely(sys.stderr, f"{text}\n")


def stdout_is_stderr() -> None:
    """Redirect stdout to stderr for the rest of this process."""
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    sys.stdout = sys.stderr


def settle_streams() -> None:
    """Flush, and drop failed writes, for which the interpreter would exit with 120."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                _open_nothing(stream.fileno())


def _open_nothing(descriptor: int) -> None:
    """Make a descriptor one of the null device."""
    nothing = os.open(os.devnull, os.O_RDWR)
    if nothing != descriptor:
        os.dup2(nothing, descriptor)
        os.close(nothing)
