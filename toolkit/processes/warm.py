"""Warm servers: processes that import torch once and answer requests over their standard streams.

    server = WarmServer.start("ctk.package.module", failure="the worker did not start")
    write_json(server.requests, {...})        in the module:  pipes = become_server()
    server.answers.readline()                                 for line in pipes.requests: ...
    server.close()                                            ends when its stdin is closed

A server runs no operator itself, so that it stays safe to fork; a child of it does the work.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import BinaryIO, Self, cast

from ctk.compiler.errors import ChildError
from ctk.compiler.posix import require_posix
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.usercode.process_name import process_name
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.groups import adopt_orphans, kill_group
from ctk.toolkit.processes.scratch import OWNER, scratch_root

READY = b"ready\n"
"""The first line of a server."""

END_SECONDS = 5.0
"""How long a server may take to end after its stdin is closed."""

_LOG_LINES = 30
"""How many of the last lines of a server's stderr an error message shows."""


def child_environment() -> dict[str, str]:
    """Return the environment of a Python child: this one's import path, owner mark and TMPDIR.

    The working folder, which may be untrusted, is not on the child's import path.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        "TMPDIR": str(scratch_root()),
        # A failed assertion of a kernel is reported at the call that launched it, not later.
        "CUDA_LAUNCH_BLOCKING": os.environ.get("CUDA_LAUNCH_BLOCKING", "1"),
        OWNER: process_name(),
    }


def warm_environment() -> dict[str, str]:
    """Return the environment of a server whose forks compile.

    There is no pool of compile workers: its processes would outlive a request, or die with it and
    be missing for the next. Compiled code stays in Inductor's cache, which is not temporary.
    """
    return {
        **child_environment(),
        "TORCHINDUCTOR_CACHE_DIR": inductor.cache_folder(),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Asking the CUDA runtime for a GPU, as Inductor does at its import, would leave the forks
        # of the server without CUDA; the driver's management library can be asked instead.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    }


def write_json(file: BinaryIO, value: object) -> None:
    """Write a value as one line of JSON, and flush."""
    file.write(json.dumps(value).encode() + b"\n")
    file.flush()


def open_log() -> BinaryIO:
    """Return a new temporary file for the stderr of a server; its owner closes it."""
    return cast("BinaryIO", tempfile.TemporaryFile())


def read_tail(log: BinaryIO) -> str:
    """Return the last lines of a log."""
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])


def launch(
    module: str, *, stdin: int, stdout: int | BinaryIO, log: BinaryIO
) -> "subprocess.Popen[bytes]":
    """Start a module as a warm process that leads its own session; its stderr goes to `log`.

    Raises:
        UnsupportedPlatform: On Windows.
    """
    require_posix("a question in a child process")
    return subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=stdin,
        stdout=stdout,
        stderr=log,
        env=warm_environment(),
        start_new_session=True,
    )


def end_launched(process: "subprocess.Popen[bytes]", seconds: float = END_SECONDS) -> None:
    """Wait for the end of a warm process whose stdin is closed; kill its group if it takes long."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_group(process.pid)
        process.wait()


@dataclass(slots=True)
class WarmServer(Closeable):
    """The client's side of a warm server; a context manager that ends it.

    Attributes:
        end: Waits for its end once its stdin is closed, and kills it if it does not end.
    """

    requests: BinaryIO
    answers: BinaryIO
    log: BinaryIO
    pid: int
    end: Callable[[Self], None]

    @classmethod
    def start(cls, module: str, *, failure: str, end_seconds: float = END_SECONDS) -> Self:
        """Start a server in a process of its own and wait until it is ready.

        Args:
            end_seconds: How long it may take to end after its stdin is closed.

        Raises:
            CtkError: It ended before it was ready.
        """
        log = open_log()
        process = launch(module, stdin=subprocess.PIPE, stdout=subprocess.PIPE, log=log)
        pipes = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        server = cls(*pipes, log, process.pid, lambda _: end_launched(process, end_seconds))
        server.await_ready(failure)
        return server

    def await_ready(self, failure: str) -> None:
        """Wait until the server is ready; close it if it is not.

        Raises:
            CtkError: It ended before it was ready.
        """
        try:
            if self.answers.readline() != READY:
                raise ChildError(f"{failure}\n{self.tail()}")
        except BaseException:
            self.close()
            raise

    def send(self, value: object) -> None:
        """Send a request, as one line of JSON, and clear the log."""
        self.log.seek(0)
        self.log.truncate()
        write_json(self.requests, value)

    def tail(self) -> str:
        """Return the last lines that the server and its children have written to stderr."""
        return read_tail(self.log)

    def close(self) -> None:
        """Close the stdin of the server, which ends it and its child; else kill it."""
        with suppress(OSError):
            self.requests.close()
        self.end(self)
        self.answers.close()
        self.log.close()


def end_grandchild(server: WarmServer) -> None:
    """Wait for the end of a server that another process has forked, by its pipe."""
    if not _has_closed(server):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(server.pid, signal.SIGKILL)


def _has_closed(server: WarmServer) -> bool:
    while select.select([server.answers], [], [], END_SECONDS)[0]:
        if not os.read(server.answers.fileno(), 1 << 16):
            return True
    return False


@dataclass(frozen=True, slots=True)
class ServerPipes:
    """The server's side: its requests (unbuffered, so that `select` works) and its answers."""

    requests: BinaryIO
    answers: BinaryIO


def become_server() -> ServerPipes:
    """Make this process a warm server, which reports that it is ready.

    It ignores Ctrl-C, adopts orphans of its children, and has an empty stdin; prints of the
    compiled programs go to stderr.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipes = ServerPipes(os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(os.dup(1), "wb"))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    adopt_orphans()
    pipes.answers.write(READY)
    pipes.answers.flush()
    return pipes
