"""Play both sides of a program, each in a process of its own, and compare them.

A process of its own, because a program may change its globals, end its process or hang.
"""

import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ctk.compiler.errors import CtkError
from ctk.repro_templates.graph.loading import CannotTell
from ctk.repro_templates.program.program_compare import (
    CallDifference,
    Comparison,
    EagerPlays,
    compare_documented,
    compare_plays,
)
from ctk.repro_templates.program.program_play import How, Played
from ctk.repro_templates.program.program_values import read_values, unpack, write_values

Values = Mapping[str, Any]
"""The calls of one side, packed, as `calls`.

Or `died`: how its process ended; or `refused`: why the compiler under test cannot run.
"""

Side = Callable[[bool, How], Values]
"""Plays eager (False) or compiled (True)."""


class Died(Exception):
    """The process of one side did not finish; its text has the reason."""


def compare_sides(side: Side, how: How, *, strides: bool) -> Comparison:
    """Return how the compiled side of a program differs from eager.

    Raises:
        Died: Eager does not finish.
        CannotTell: The compiler under test is missing, or does not take its options.
    """
    eager = EagerPlays(partial(play_by, side, False), how)
    try:
        compiled = play_by(side, True, eager.how)
    except Died as end:
        return Comparison("fails", (difference_of(end),))
    found = compare_plays(eager, compiled, strides=strides)
    try:
        return compare_documented(eager, found, partial(play_by, side, True), strides=strides)
    except Died:  # the documented setting breaks the program
        return found


def play_by(side: Side, is_compiled: bool, how: How) -> Sequence[Played]:
    """Return the calls of one side; raise `Died` if it ended, `CannotTell` if it was refused."""
    values = side(is_compiled, how)
    if "refused" in values:
        raise CannotTell(values["refused"])
    if "died" in values:
        raise Died(values["died"])
    return unpack(values["calls"])


def difference_of(end: Died) -> CallDifference:
    """Return the difference for a compiled side that did not finish."""
    kind, _, rest = str(end).partition(" ")
    return CallDifference(kind, "the compiled program", rest)


def in_own_process(
    work: Callable[[], Values],
    timeout_seconds: float,
    holds_too_much: Callable[[int], bool] = lambda pid: False,
) -> Values:
    """Do some work in a forked process and return its values, or how it ended.

    Args:
        timeout_seconds: With more it is killed.
        holds_too_much: Whether a process holds more memory than it may; then it is killed.

    Raises:
        CannotTell: On Windows.
    """
    if not hasattr(os, "fork"):
        raise CannotTell("a program in a child process needs POSIX (fork): use WSL or Linux")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "values"
        with warnings.catch_warnings():  # of the threads of torch, which are idle
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                write_outcome(work, path)
                status = 0
            finally:
                os._exit(status)
        code = status_of(pid, timeout_seconds, holds_too_much)
        if code == 0 and path.is_file():
            return read_values(path)
    return {"died": code if isinstance(code, str) else end_of(code)}


def end_of(code: int) -> str:
    """Return how a process ended, as a kind of failure and a detail."""
    return f"signal {-code}" if code < 0 else f"exit with status {code}"


def write_outcome(work: Callable[[], Values], path: Path) -> None:
    """Do some work and write its values, or its exception."""
    try:
        write_values(work(), path)
    except (CannotTell, CtkError) as error:  # about the compiler, not the program
        write_values({"refused": str(error)}, path)
    except BaseException as error:  # SystemExit as well: it is the program's
        write_values({"died": f"structure {type(error).__name__}: {error}"}, path)


def status_of(pid: int, timeout_seconds: float, holds_too_much: Callable[[int], bool]) -> int | str:
    """Wait for a process and return its status, or why it was killed."""
    deadline = time.monotonic() + timeout_seconds
    pause, why = 0.002, f"timeout not done after {timeout_seconds:g} s"
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if holds_too_much(pid):
            why = "memory more of it than it may hold"
            break
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return why
