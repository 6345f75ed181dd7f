"""Run questions in a child process, which may crash or hang.

It is for failures that kill or stop the process, and for time limits. It costs one save and load of
the case per question.
"""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

from ctk.compiler.errors import ChildError
from ctk.compiler.options.environment import read_environment
from ctk.toolkit.case.formats.files import temporary_folder
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.case.store import save_case
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.isolation import ask_in_isolation
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, ExecutorKind, Needs
from ctk.toolkit.oracle.executors.pool import Pool, count_cores
from ctk.toolkit.oracle.executors.protocol import (
    Answer,
    Cancelled,
    ChildQuestion,
    Failure,
    error_of,
)
from ctk.toolkit.oracle.executors.worker_client import Worker, Zygote, start_worker
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.memory import default_limit_nbytes, describe_excess, name_limit
from ctk.toolkit.processes.scratch import scratch_root

_BUSY = 10.0
"""Limit of the wait for a core, as a multiple of a short deadline, without `limit_seconds`."""

_WORKERS_PER_QUESTION = 3
"""How many workers a question may lose: one may be killed by chance, three are not."""


_LOOK_SECONDS = 0.1


class MemoryGate:
    """A gate for questions that share the memory of a machine; thread-safe.

    A question that ran out of memory beside others is repeated alone:

        with gate.share(...): ...       beside other shared questions
        with gate.exclude(...): ...     after all of them; new ones wait
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._sharing = 0
        self._is_exclusive = False

    @contextmanager
    def share(self, is_cancelled: Callable[[], bool]) -> Generator[None]:
        """Run the block beside others; raises `Cancelled` if cancelled while it waits."""
        with self._changed:
            self._wait(lambda: not self._is_exclusive, is_cancelled)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def exclude(self, is_cancelled: Callable[[], bool]) -> Generator[None]:
        """Run the block while no other question runs; raises `Cancelled` if cancelled meanwhile."""
        with self._changed:
            self._wait(lambda: not self._is_exclusive, is_cancelled)
            self._is_exclusive = True
        try:
            with self._changed:
                self._wait(lambda: self._sharing == 0, is_cancelled)
            yield
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], is_cancelled: Callable[[], bool]) -> None:
        while not condition():
            if is_cancelled():
                raise Cancelled
            self._changed.wait(_LOOK_SECONDS)


class ChildProcess(Executor):
    """Judges in a child process, forked from a warm worker (`ctk.toolkit.oracle.executors.worker`).

    A child killed by a signal gives a signature of kind `signal`, a child past its deadline the
    verdict `timeout` (`reproduces` if the expected failure is a timeout). The worker starts with
    the first question. Ctrl-C reaches this process only; it ends the worker, and the next question
    starts another.

    Args:
        timeout_seconds: Time limit of one question, the time to compile included; None: no limit.
            Each question may have a shorter one (`ctk.toolkit.oracle.deadlines`).
        memory_nbytes: Memory limit of one question and its processes; None takes `CTK_MEMORY`, else
            most of the free memory.
    """

    isolates = True

    def __init__(
        self,
        timeout_seconds: float | None = None,
        memory_nbytes: int | None = None,
        *,
        start: Callable[[str], Worker] = start_worker,
        gate: MemoryGate | None = None,
    ) -> None:
        self.limit_seconds = timeout_seconds
        self.memory_nbytes = memory_nbytes or read_environment().memory_nbytes
        self.memory = name_limit(self.memory_nbytes)
        self._start, self._gate = start, gate or MemoryGate(1)
        self._worker: Worker | None = None
        self._cancelled = threading.Event()

    def judge(self, question: Question) -> Judgement:
        """Judge a case in a child."""
        with temporary_folder("ctk-question-", scratch_root()) as folder:
            case = question.case
            saved = ChildQuestion(
                target=case.target,
                folder=str(save_case(case, folder / "case", inputs="full", portable=False)),
                expected=question.expected,
                timeout_seconds=question.deadline_seconds,
                veto=question.veto,
            )
            return self.ask_saved(saved)

    def ask_saved(self, question: ChildQuestion) -> Judgement:
        """Judge a case on disk; the memory limit, and a missing time limit, are set here."""
        whole = self.limit_seconds
        limit = whole if question.timeout_seconds is None else question.timeout_seconds
        busy = 0.0 if limit is None or limit == whole else (whole or _BUSY * limit) - limit
        started = time.monotonic()
        answer = self._answer(replace(question, timeout_seconds=limit, busy_seconds=busy))
        seconds = limit if answer.is_out_of_time else time.monotonic() - started
        return replace(answer, seconds=seconds)

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, each in a child; a callable in this process."""
        return ask_in_isolation(question, self.limit_seconds, self.memory_nbytes)

    def resume(self) -> None:
        self._cancelled.clear()

    def cancel(self) -> None:
        """End the child of the running question of another thread."""
        self._cancelled.set()
        if (worker := self._worker) is not None:
            worker.cancel()

    def close(self) -> None:
        """End the worker and its child, and wait for them."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _answer(self, question: ChildQuestion) -> Judgement:
        """Answer; repeat the question alone if it ran out of memory or was killed beside others."""
        most = self.memory_nbytes or default_limit_nbytes()
        share = self.memory_nbytes or (most and most // self._gate.size)
        with self._gate.share(self._cancelled.is_set):
            answer = self._ask_workers(replace(question, memory_nbytes=share))
        seen = answer.signature
        if seen is None or seen.kind != "memory" or self._gate.size == 1:
            return answer
        if self.memory_nbytes is not None and seen.message == describe_excess(self.memory_nbytes):
            return answer
        with self._gate.exclude(self._cancelled.is_set):
            return self._ask_workers(replace(question, memory_nbytes=most))

    def _ask_workers(self, question: ChildQuestion) -> Judgement:
        """Ask a worker, and another one if it has ended meanwhile."""
        log = ""
        for _ in range(_WORKERS_PER_QUESTION):
            worker = self._worker = self._worker or self._start(question.target)
            answer = self._ask_worker(worker, question)
            if isinstance(answer, Failure):
                raise error_of(answer)
            if answer is not None:
                return _with_log(answer, worker)
            log = worker.tail()
            self.close()
        raise ChildError(
            f"the oracle's worker process ended during a question, {_WORKERS_PER_QUESTION} times "
            f"in a row: something kills it, or no memory is left\n{log}"
        )

    def _ask_worker(self, worker: Worker, question: ChildQuestion) -> Answer | None:
        if self._cancelled.is_set():
            raise Cancelled
        try:
            worker.send_question(question)
            if self._cancelled.is_set():  # set before the question was sent
                worker.cancel()
            return worker.receive()
        except (BrokenPipeError, ConnectionResetError):
            return None
        except BaseException:  # Ctrl-C: the next question would read this answer
            self.close()
            raise


def _with_log(answer: Judgement, worker: Worker) -> Judgement:
    kind = answer.signature.kind if answer.signature is not None else None
    has_died = kind in ("signal", "exit", "memory")
    return replace(answer, detail=f"{answer.detail}\n{worker.tail()}") if has_died else answer


def _serves(needs: Needs) -> bool:
    if needs.jobs.executor != "local":
        return False
    if needs.isolate is not None:
        return needs.isolate
    if needs.jobs.count != 1:
        return True
    has_limit = needs.timeout_seconds is not None or needs.memory_nbytes is not None
    return has_limit or needs.is_deadly


def _start_for(needs: Needs) -> Executor:
    jobs = needs.jobs.count or count_cores()
    if jobs == 1:
        return ChildProcess(needs.timeout_seconds, needs.memory_nbytes)
    zygote, gate = Zygote(), MemoryGate(jobs)
    limits, start = (needs.timeout_seconds, needs.memory_nbytes), zygote.start_worker
    return Pool([ChildProcess(*limits, start=start, gate=gate) for _ in range(jobs)], zygote)


EXECUTOR = ExecutorKind("child", _serves, _start_for)
