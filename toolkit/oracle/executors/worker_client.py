"""Start and end the workers of worker.py: one in a process of its own, or several of one zygote."""

import os
import socket
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO

from ctk.compiler.errors import ChildError
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.oracle.executors.protocol import CANCEL, Answer, ChildQuestion, read_answer
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.warm import (
    WarmServer,
    end_grandchild,
    end_launched,
    launch,
    open_log,
    read_tail,
)

_NOT_STARTED = "the oracle's worker process did not start"


@dataclass(slots=True)
class Worker(WarmServer):
    """A warm server that judges cases; any thread may cancel its question."""

    _writing: threading.Lock = field(default_factory=threading.Lock)
    _is_asked: bool = False

    def send_question(self, question: ChildQuestion) -> None:
        """Send a question; `receive` returns its answer."""
        with self._writing:
            self._is_asked = True
            self.send(encode(question))

    def receive(self) -> Answer | None:
        """Return the answer; None if the worker has ended."""
        answer = read_answer(self.answers)
        with self._writing:
            self._is_asked = False
        return answer

    def cancel(self) -> None:
        """Cancel the question, from any thread; its answer is a failure of kind `Cancelled`."""
        with self._writing, suppress(OSError, ValueError):
            if self._is_asked:
                self._is_asked = False
                self.requests.write(CANCEL)
                self.requests.flush()


def start_worker(target: str) -> Worker:
    """Start a worker in a process of its own and wait until it is ready.

    Raises:
        CtkError: It ended before it was ready.
    """
    return Worker.start("ctk.toolkit.oracle.executors.worker", failure=_NOT_STARTED)


class Zygote(Closeable):
    """Starts workers as forks of one warm process (zygote.py), from any thread."""

    def __init__(self) -> None:
        self._asking = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._log: BinaryIO | None = None
        self._last_lines = ""
        self._is_closing = False

    def start_worker(self, target: str) -> Worker:
        """Start a worker and wait until it is ready; a zygote that has ended is started again.

        Raises:
            CtkError: It did not start.
        """
        log = open_log()
        their_questions, questions = os.pipe()
        answers, their_answers = os.pipe()
        pipes = os.fdopen(questions, "wb"), os.fdopen(answers, "rb")
        try:
            streams = (their_questions, their_answers, log.fileno())
            with self._asking:
                pid = self._fork(target, streams) or self._fork(target, streams)
            if pid is None:
                raise ChildError(f"the oracle's warm process has ended\n{self._last_lines}")
        except BaseException:
            for file in (*pipes, log):
                file.close()
            raise
        finally:
            os.close(their_questions)
            os.close(their_answers)
        worker = Worker(*pipes, log, pid, end_grandchild)
        worker.await_ready(_NOT_STARTED)
        return worker

    def _fork(self, target: str, streams: tuple[int, int, int]) -> int | None:
        """Return the id of a new worker; None if the zygote has ended, which is closed then."""
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
        self._log = open_log()
        with theirs:
            self._process = launch(
                "ctk.toolkit.oracle.executors.zygote",
                stdin=theirs.fileno(),
                stdout=self._log,
                log=self._log,
            )
        return ours

    def _end(self) -> None:
        control, self._control = self._control, None
        process, self._process = self._process, None
        log, self._log = self._log, None
        if control is not None:
            control.close()
        if process is not None:
            end_launched(process)
        if log is not None:
            self._last_lines = read_tail(log)
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
