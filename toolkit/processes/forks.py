"""Fork a child that runs a function, or that answers over a pair of pipes.

Every fork of ctk is made here, except for the working half of a command (supervise.py), whose child
returns to its caller, and for emitted scripts, which carry `program_sides.py`.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Self

from ctk.compiler.posix import require_posix
from ctk.toolkit.processes.groups import die_with, end_group, lead_group
from ctk.toolkit.processes.signals import restore_handlers


def flush_streams() -> None:
    """Flush stdout and stderr: otherwise both processes would write the buffers after a fork."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()


def fork() -> int:
    """Fork without Python's warning of other threads, which `-W error` makes an error.

    Those of C++ are idle here, and callers exclude the rest.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def fork_process(run: Callable[[], int], *, leads_group: bool = True) -> int:
    """Fork a child that runs a function; return the child's process id.

    The child dies with this process (Linux). It never returns from `run` into the code of this
    process: it ends with the status that `run` returns, 1 if `run` raises. Nothing is flushed.

    Args:
        leads_group: Whether the child leads a process group, so that Ctrl-C does not reach it.

    Raises:
        UnsupportedPlatform: On Windows.
    """
    require_posix("a question in a child process")
    parent = os.getpid()
    pid = fork()
    if pid != 0:
        return pid
    status = 1
    try:
        restore_handlers()
        if leads_group:
            lead_group(parent)
        else:
            die_with(parent)
        status = run()
    finally:
        os._exit(status)


@dataclass(frozen=True, slots=True)
class ForkedChild:
    """A forked process that reads requests and writes answers.

    Attributes:
        answers: The reading end of its answers; unbuffered, so that `select` works on it.
    """

    pid: int
    requests: BinaryIO
    answers: BinaryIO

    @classmethod
    def start(
        cls,
        serve: Callable[[BinaryIO, BinaryIO], int],
        *,
        unused: Iterable[int] = (),
        leads_group: bool = True,
    ) -> Self:
        """Fork a child that serves requests.

        Args:
            serve: Called in the child with its requests (unbuffered) and its answers; returns the
                exit status.
        """
        request_out, request_in = os.pipe()
        answer_out, answer_in = os.pipe()

        def run() -> int:
            for descriptor in (request_in, answer_out, *unused):
                os.close(descriptor)
            with os.fdopen(answer_in, "wb") as answers:
                return serve(os.fdopen(request_out, "rb", buffering=0), answers)

        pid = fork_process(run, leads_group=leads_group)
        os.close(request_out)
        os.close(answer_in)
        requests = os.fdopen(request_in, "wb")
        return cls(pid, requests, os.fdopen(answer_out, "rb", buffering=0))

    def close(self) -> None:
        """Close both pipes; a child that waits for a request ends."""
        with suppress(BrokenPipeError):  # a request that the child has not read
            self.requests.close()
        self.answers.close()

    def end(self) -> int:
        """Kill the child and its group, close the pipes and return its exit status.

        Raises:
            ChildProcessError: The system has reaped the child, because SIGCHLD is ignored.
        """
        try:
            return end_group(self.pid)
        finally:
            self.close()
