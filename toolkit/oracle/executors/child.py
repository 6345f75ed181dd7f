"""Run questions in a child process, which may crash or hang.

For failures that kill or stop the process, and whenever a time limit is wanted. It costs one save
and load of the case per question.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from typing import BinaryIO, cast

from ctk.compiler.environment import read_environment
from ctk.compiler.errors import CtkError
from ctk.compiler.process_name import process_name
from ctk.compiler.torch_compat import inductor
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.apart import ask_apart
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.formats.files import temporary_folder
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs
from ctk.toolkit.oracle.executors.patience import Patience
from ctk.toolkit.oracle.protocol import (
    Failure,
    Question,
    error_of,
    read_answer,
    write_line,
)
from ctk.toolkit.processes.memory import default_limit_nbytes
from ctk.toolkit.processes.scratch import OWNER, scratch_root

_END_SECONDS = 5.0
"""How long a worker may take to end when its stdin is closed."""

_LOG_LINES = 30
"""How many of a child's last lines a crash's detail holds."""


@dataclass(frozen=True, slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    log: BinaryIO

    @property
    def questions(self) -> BinaryIO:
        return cast("BinaryIO", self.process.stdin)

    @property
    def answers(self) -> BinaryIO:
        return cast("BinaryIO", self.process.stdout)


class ChildProcess(Executor):
    """Judges in a child process, forked from a warm worker (`ctk.toolkit.oracle.worker`).

    A child that is killed by a signal gives a signature of kind `signal`, one that does not answer
    in time the verdict `timeout` (and `reproduces`, if a timeout is the failure that is looked
    for). The worker starts with the first question. Ctrl-C reaches this process only; it ends the
    worker, and the next question starts another.

    Args:
        timeout_seconds: Time limit of one question, the time to compile included; None: no limit.
            Candidates of a reduction may take less (patience.py).
        memory_nbytes: What one question, with all that it starts, may hold; None takes
            `CTK_MEMORY`, else most of what is free.
    """

    isolates = True

    def __init__(
        self,
        timeout_seconds: float | None = None,
        memory_nbytes: int | None = None,
    ) -> None:
        self.patience = Patience(timeout_seconds)
        self.memory_nbytes = memory_nbytes or read_environment().memory_nbytes
        self._worker: _Worker | None = None

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement:
        """Judge a case in a child."""
        with temporary_folder("ctk-question-", scratch_root()) as folder:
            question = Question(
                target=case.target,
                folder=str(save_case(case, folder / "case", inputs="full", portable=False)),
                expected=expected,
                timeout_seconds=self.patience.seconds(is_candidate=is_candidate),
                memory_nbytes=self.memory_nbytes or default_limit_nbytes(),
                veto=veto,
            )
            return self._answer_in_time(question)

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, each in a child; a callable, which has no file, here."""
        return ask_apart(question, self.patience.limit_seconds, self.memory_nbytes)

    def _answer_in_time(self, question: Question) -> Judgement:
        """Answer; a short limit that ran out is believed to be a hang that is looked for only once
        the whole one has run out as well.
        """
        started = time.monotonic()
        answer = self._answer(question)
        if answer.signature is None or answer.signature.kind != "timeout":
            self.patience.note(time.monotonic() - started)
            return answer
        is_short = question.timeout_seconds != self.patience.limit_seconds
        if answer.verdict is not Verdict.REPRODUCES or not is_short or self.patience.is_proved:
            return answer
        whole = replace(question, timeout_seconds=self.patience.limit_seconds)
        answer = self._answer_in_time(whole)
        self.patience.is_proved = answer.verdict is Verdict.REPRODUCES
        return answer

    def close(self) -> None:
        """End the worker and its child, and wait for them."""
        worker, self._worker = self._worker, None
        if worker is not None:
            _end(worker)

    def _answer(self, question: Question) -> Judgement:
        worker = self._worker = self._worker or _start()
        worker.log.seek(0)
        worker.log.truncate()
        try:
            write_line(worker.questions, question)
            answer = read_answer(worker.answers)
        except BrokenPipeError:
            answer = None
        except BaseException:  # Ctrl-C: the answer would be taken for that of the next question
            self.close()
            raise
        if answer is None:
            log = _tail(worker)
            self.close()
            raise CtkError(f"the oracle's worker process ended while it was asked\n{log}")
        if isinstance(answer, Failure):
            raise error_of(answer)
        kind = answer.signature.kind if answer.signature is not None else None
        has_died = kind in ("signal", "exit", "memory")
        return replace(answer, detail=f"{answer.detail}\n{_tail(worker)}") if has_died else answer


def _start() -> _Worker:
    """Start a worker and wait until it is ready.

    Raises:
        CtkError: It ended before it was.
    """
    log = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115  lives as long as the worker
    process = subprocess.Popen(
        [sys.executable, "-m", "ctk.toolkit.oracle.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(),
        start_new_session=True,
    )
    worker = _Worker(process, log)
    try:
        if not worker.answers.readline():
            raise CtkError(f"the oracle's worker process did not start\n{_tail(worker)}")
    except BaseException:
        _end(worker)
        raise
    return worker


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


def _tail(worker: _Worker) -> str:
    worker.log.flush()
    worker.log.seek(0)
    lines = worker.log.read().decode(errors="replace").splitlines()
    return "\n".join(lines[-_LOG_LINES:])


def _end(worker: _Worker) -> None:
    """Close the worker's stdin, which ends it and its child; kill it if it does not."""
    with contextlib.suppress(BrokenPipeError):
        worker.questions.close()
    try:
        worker.process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(worker.process.pid, signal.SIGKILL)
        worker.process.wait()
    worker.answers.close()
    worker.log.close()


def _serves(needs: Needs) -> bool:
    if needs.isolate is not None:
        return needs.isolate
    has_limit = needs.timeout_seconds is not None or needs.memory_nbytes is not None
    return has_limit or needs.is_deadly


def _start_for(needs: Needs) -> ChildProcess:
    return ChildProcess(needs.timeout_seconds, needs.memory_nbytes)


EXECUTOR = ExecutorKind("child", _serves, _start_for)
