"""Run a command of the user's within limits of time and output; nothing of it stays behind.

It leads its own session, reads nothing, and ends with SIGKILL, which nobody can ignore: its process
group, and whatever left the group (a daemon), known by a mark in the environment. What it prints
may be anything: bytes that are no text are replaced.
"""

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal

from ctk.compiler.errors import ProgramError
from ctk.toolkit.processes.link import tell_alive
from ctk.toolkit.processes.tree import carriers, end_processes

MARK = "CTK_COMMAND_RUN"
"""Variable of the environment of one run and all that it starts."""

OUTPUT_NBYTES = 64 << 20
"""A command that prints more is ended: it would fill the disk."""

_POLL_SECONDS = 0.05
_FIRST_POLL_SECONDS = 0.002
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        code: Its exit code; a negative one is the signal that ended it. None: it was ended here.
        output: What it printed, standard error with standard output.
        seconds: How long it took.
        exceeded: The limit for which it was ended.
    """

    code: int | None
    output: str
    seconds: float
    exceeded: Literal["time", "output"] | None = None


def run_command_group(
    words: Sequence[str],
    *,
    seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> CommandEnd:
    """Run a command and wait for its end; what it has started ends with it.

    Args:
        words: The program and its arguments; no shell looks at them.
        seconds: How long it may take; None: as long as it likes.
        variables: Set in its environment, beside ours.

    Raises:
        ProgramError: It cannot be started.
    """
    mark = uuid.uuid4().hex
    started = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = _started(words, out, {**os.environ, **(variables or {}), MARK: mark})
        try:
            exceeded = _waited(process, out, started, seconds)
        finally:
            _end(process, mark)
        code = None if exceeded else process.returncode
        return CommandEnd(code, _text_of(out), time.monotonic() - started, exceeded)


def _started(
    words: Sequence[str], out: BinaryIO, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            list(words),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in a word
        raise ProgramError(f"the command cannot be started: {error}") from error


def _waited(
    process: "subprocess.Popen[bytes]", out: BinaryIO, started: float, seconds: float | None
) -> Literal["time", "output"] | None:
    """Wait for the end; return the limit that was passed instead."""
    pause = _FIRST_POLL_SECONDS
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
            return None
        tell_alive()
        pause = min(2 * pause, _POLL_SECONDS)
        if seconds is not None and time.monotonic() - started > seconds:
            return "time"
        if os.fstat(out.fileno()).st_size > OUTPUT_NBYTES:
            return "output"


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill the command's group and what left it; the command itself is waited for."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for _ in range(_LOOKS):  # one that forks while we look hides its child from that look
        if not end_processes(carriers(f"{MARK}={mark}")):
            return


def _text_of(out: BinaryIO) -> str:
    """Return the output, as far as it may be long."""
    return os.pread(out.fileno(), OUTPUT_NBYTES, 0).decode(errors="replace")
