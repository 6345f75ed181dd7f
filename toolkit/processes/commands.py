"""Run a command in a session of its own; none of its processes remain.

The command and its process group end with SIGKILL, which cannot be ignored. `run_command_group`
also ends processes that left the group (a daemon), found by a mark in their environment, and limits
time and output. Output that is not text is replaced.
"""

import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from ctk.compiler.errors import ProgramError
from ctk.compiler.posix import require_posix
from ctk.toolkit.processes.groups import kill_group
from ctk.toolkit.processes.link import report_alive
from ctk.toolkit.processes.tree import find_carriers, kill_processes

MARK = "CTK_COMMAND_RUN"
"""Environment variable of one run and all processes that it starts."""

OUTPUT_NBYTES = 64 << 20
"""A command that prints more is ended: it would fill the disk."""

CANNOT_TELL = 125

Outcome = Literal["good", "bad", "cannot tell"]

_POLL_SECONDS = 0.05
_FIRST_POLL_SECONDS = 0.002
_LOOKS = 20


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended.

    Attributes:
        code: Its exit code; a negative one is the signal that ended it. None: it passed a limit.
    """

    code: int | None
    output: str
    seconds: float
    exceeded: Literal["time", "output"] | None = None


@contextmanager
def run_group(
    words: Sequence[str],
    *,
    environ: Mapping[str, str],
    folder: Path | None = None,
    stdin: int | None = None,
    stdout: int | BinaryIO | None = None,
    stderr: int | BinaryIO | None = None,
) -> Generator["subprocess.Popen[bytes]"]:
    """Run a command as the leader of a session; when the block is left, its group is killed.

    Raises:
        ProgramError: It cannot be started.
        UnsupportedPlatform: On Windows.
    """
    require_posix("a command that is ended with all that it starts")
    try:
        process = subprocess.Popen(
            list(words),
            env=environ,
            cwd=folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # ValueError: a NUL byte in a word
        raise ProgramError(f"the command cannot be started: {error}") from error
    try:
        yield process
    finally:
        kill_group(process.pid)
        process.wait()


def run_command_group(
    words: Sequence[str],
    *,
    seconds: float | None = None,
    environ: Mapping[str, str] | None = None,
) -> CommandEnd:
    """Run a command, wait for its end, and end all processes that it started.

    Args:
        environ: Its environment; None for that of this process.

    Raises:
        ProgramError: It cannot be started.
    """
    mark = uuid.uuid4().hex
    started = time.monotonic()
    with tempfile.TemporaryFile() as out:
        try:
            with run_group(
                words,
                environ={**(os.environ if environ is None else environ), MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            ) as process:
                exceeded = _wait(process, out, started, seconds)
        finally:
            _end_carriers(mark)
        code = None if exceeded else process.returncode
        output = os.pread(out.fileno(), OUTPUT_NBYTES, 0).decode(errors="replace")
        return CommandEnd(code, output, time.monotonic() - started, exceeded)


def _wait(
    process: "subprocess.Popen[bytes]", out: BinaryIO, started: float, seconds: float | None
) -> Literal["time", "output"] | None:
    """Wait for the end; return the limit that was passed instead."""
    pause = _FIRST_POLL_SECONDS
    while True:
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
            return None
        report_alive()
        pause = min(2 * pause, _POLL_SECONDS)
        if seconds is not None and time.monotonic() - started > seconds:
            return "time"
        if os.fstat(out.fileno()).st_size > OUTPUT_NBYTES:
            return "output"


def _end_carriers(mark: str) -> None:
    for _ in range(_LOOKS):  # a process that forks during a look hides its child from that look
        if not kill_processes(find_carriers(f"{MARK}={mark}")):
            return


def read_outcome(code: int) -> Outcome:
    """Return the outcome for an exit code, read as `git bisect run` does.

    0 is good: no failure; 125 cannot tell; any other code, and a signal (negative), is bad.
    """
    return "good" if code == 0 else "cannot tell" if code == CANNOT_TELL else "bad"


def describe_exit(code: int) -> str:
    """Return an exit code as text: `exit code 3`, `signal SIGSEGV`."""
    return f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
