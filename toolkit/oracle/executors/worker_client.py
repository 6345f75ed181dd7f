"""Start and end the workers of `ctk.toolkit.oracle.executors.worker`: one alone, or many of one nursery.

What it does not do: ask them anything (child.py).
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from ctk.compiler.errors import CtkError
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.usercode.process_name import process_name
from ctk.toolkit.oracle.executors.protocol import READY, UNWANTED, ChildQuestion, write_line
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.scratch import OWNER, scratch_root

_END_SECONDS = 5.0
"""How long a worker may take to end when its stdin is closed."""

_LOG_LINES = 30
"""How many of a child's last lines a crash's detail holds."""


@dataclass(slots=True)
class Worker:
    """A running worker.

    Attributes:
        questions: Its stdin.
        answers: Its stdout.
        log: Where its stderr goes.
        pid: Its process id.
        end: Sees to its end once its stdin is closed, by force if need be.
    """

    questions: BinaryIO
    answers: BinaryIO
    log: BinaryIO
    pid: int
    end: Callable[["Worker"], None]
    _writing: threading.Lock = field(default_factory=threading.Lock)
    _is_asked: bool = False

    def ask(self, question: ChildQuestion) -> None:
        """Send a question, whose answer comes from `answers`."""
        self.log.seek(0)
        self.log.truncate()
        with self._writing:
            self._is_asked = True
            write_line(self.questions, question)

    def answered(self) -> None:
        """Take note that the answer has come."""
        with self._writing:
            self._is_asked = False

    def unwant(self) -> None:
        """Say, in any thread, that nobody wants the answer any more."""
        with self._writing, contextlib.suppress(OSError, ValueError):
            if self._is_asked:
                self._is_asked = False
                self.questions.write(UNWANTED)
                self.questions.flush()

    def tail(self) -> str:
        """Return the last lines that the worker and its children have written."""
        return _tail(self.log)

    def close(self) -> None:
        """Close the worker's stdin, which ends it and its child; kill it if it does not."""
        with contextlib.suppress(OSError):
            self.questions.close()
        self.end(self)
        self.answers.close()
        self.log.close()


def _tail(log: BinaryIO) -> str:
    log.flush()
    log.seek(0)
    lines = log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])


def start_worker(target: str) -> Worker:
    """Start a worker of its own process and wait until it is ready.

    Args:
        target: What it will be asked about.

    Raises:
        CtkError: It ended before it was.
    """
    log = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  lives as long as the worker
    process = subprocess.Popen(
        [sys.executable, "-m", "ctk.toolkit.oracle.executors.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(),
        start_new_session=True,
    )
    pipes = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
    return _ready(Worker(*pipes, log, process.pid, lambda worker: _end(process)))


def _ready(worker: Worker) -> Worker:
    try:
        if worker.answers.readline() != READY:
            raise CtkError(f"the oracle's worker process did not start\n{worker.tail()}")
    except BaseException:
        worker.close()
        raise
    return worker


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Zygote(Closeable):
    """Starts workers that share what was imported (`ctk.toolkit.oracle.executors.zygote`); in any thread."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._log: BinaryIO | None = None
        self._last_words = ""
        self._is_closing = False

    def start_worker(self, target: str) -> Worker:
        """Start a worker and wait until it is ready; a nursery that has ended is started again.

        Raises:
            CtkError: It did not start.
        """
        log = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  lives as long as the worker
        their_questions, questions = os.pipe()
        answers, their_answers = os.pipe()
        ours = os.fdopen(questions, "wb"), os.fdopen(answers, "rb")
        try:
            streams = (their_questions, their_answers, log.fileno())
            with self._asking:
                pid = self._forked(target, streams) or self._forked(target, streams)
            if pid is None:
                raise CtkError(f"the oracle's warm process has ended\n{self._last_words}")
        except BaseException:
            for file in (*ours, log):
                file.close()
            raise
        finally:
            os.close(their_questions)
            os.close(their_answers)
        return _ready(Worker(*ours, log, pid, _end_forked))

    def _forked(self, target: str, streams: tuple[int, int, int]) -> int | None:
        """Return the id of a new worker; None where the nursery has ended, which is closed then."""
        if self._is_closing:
            return None
        try:
            control = self._control = self._control or self._start()
            socket.send_fds(control, [target.encode()], streams)
            answer = control.recv(32)
        except OSError:
            answer = b""
        if answer:
            return int(answer)
        self._end()
        return None

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self._log = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  as long as it lives
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ctk.toolkit.oracle.executors.zygote"],
                stdin=theirs.fileno(),
                stdout=self._log,
                stderr=self._log,
                env=_environment(),
                start_new_session=True,
            )
        return ours

    def _end(self) -> None:
        control, self._control = self._control, None
        process, self._process = self._process, None
        log, self._log = self._log, None
        if control is not None:
            control.close()
        if process is not None:
            _end(process)
        if log is not None:
            self._last_words = _tail(log)
            log.close()

    def close(self) -> None:
        """End the warm process, and with it every worker; the next worker starts another one."""
        self._is_closing = True
        process = self._process
        if self._asking.locked() and process is not None:  # another thread waits for its start
            process.kill()
        with self._asking:
            self._end()
            self._is_closing = False


def _end_forked(worker: Worker) -> None:
    """Wait until a worker has closed its end; its pipe is the only one that can tell."""
    if not _has_closed(worker):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(worker.pid, signal.SIGKILL)


def _has_closed(worker: Worker) -> bool:
    while select.select([worker.answers], [], [], _END_SECONDS)[0]:
        if not os.read(worker.answers.fileno(), 1 << 16):
            return True
    return False


def _environment() -> dict[str, str]:
    """Return our environment with our import path, our mark, our temporary folder, and no pool.

    The processes of a pool of compile workers would outlive a question, or die with it and be
    missed by the next. Compiled code stays in Inductor's cache, which is not temporary. Nothing is
    imported from the working folder, which may be a stranger's, by its place.
    """
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {
        **os.environ,
        "PYTHONPATH": path,
        "PYTHONSAFEPATH": "1",
        "TORCHINDUCTOR_CACHE_DIR": inductor.cache_folder(),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # To ask the CUDA runtime for a GPU, as Inductor does when it is imported, would leave the
        # worker's forks without CUDA; the driver's management library can be asked instead.
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "TMPDIR": str(scratch_root()),
        # A kernel's failed assertion is told at the call that launched it, not at a later one.
        "CUDA_LAUNCH_BLOCKING": os.environ.get("CUDA_LAUNCH_BLOCKING", "1"),
        OWNER: process_name(),
    }
