"""Run questions in a child process, which may crash or hang.

For failures that kill or stop the process, and whenever a time limit is wanted. It costs one save
and load of the case per question.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace

from ctk.compiler.environment import read_environment
from ctk.compiler.errors import CtkError
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
from ctk.toolkit.oracle.executors.company import Company
from ctk.toolkit.oracle.executors.patience import Patience
from ctk.toolkit.oracle.executors.pool import Pool, cores
from ctk.toolkit.oracle.executors.workers import Nursery, Worker, start_worker
from ctk.toolkit.oracle.protocol import (
    Answer,
    Failure,
    Question,
    Unwanted,
    error_of,
    read_answer,
)
from ctk.toolkit.processes.memory import default_limit_nbytes, too_much
from ctk.toolkit.processes.scratch import scratch_root

_WORKERS_PER_QUESTION = 3
"""How many workers a question may lose: somebody may kill one, nobody kills three by chance."""


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
        patience: The time limits, of several executors together.
        start: Starts a worker for the questions about a target.
        company: The questions that share the memory of this machine.
    """

    isolates = True

    def __init__(
        self,
        timeout_seconds: float | None = None,
        memory_nbytes: int | None = None,
        *,
        patience: Patience | None = None,
        start: Callable[[str], Worker] = start_worker,
        company: Company | None = None,
    ) -> None:
        self.patience = patience or Patience(timeout_seconds)
        self.memory_nbytes = memory_nbytes or read_environment().memory_nbytes
        self._start, self._company = start, company or Company(1)
        self._worker: Worker | None = None
        self._unwanted = threading.Event()

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
                veto=veto,
            )
            nodes = len(case.graph.graph.nodes)
            return self.ask_saved(question, nodes, is_candidate=is_candidate)

    def ask_saved(self, question: Question, nodes: int, *, is_candidate: bool) -> Judgement:
        """Judge a case that is on disk.

        Args:
            question: Its limits are set here.
            nodes: Of its graph: what it should take follows from that.
            is_candidate: About a candidate "no" is a safe answer.
        """
        limit = self.patience.seconds(is_candidate=is_candidate, nodes=nodes)
        answer = self._answer_within(question, nodes, limit)
        if limit == self.patience.limit_seconds or limit is None or not _is_hang(answer):
            return answer
        if answer.verdict is Verdict.REPRODUCES:
            return answer if self.patience.is_hang_proved else self._proved(question, nodes)
        longer = self.patience.doubted(limit)
        return answer if longer is None else self._doubted(question, nodes, longer)

    def _proved(self, question: Question, nodes: int) -> Judgement:
        """Ask with the whole limit whether a hang that is looked for is one."""
        answer = self._answer_within(question, nodes, self.patience.limit_seconds)
        self.patience.is_hang_proved = answer.verdict is Verdict.REPRODUCES
        return answer

    def _doubted(self, question: Question, nodes: int, limit: float) -> Judgement:
        """Ask again with more time, and learn from that whether the limits are too short."""
        answer = self._answer_within(question, nodes, limit)
        if _is_hang(answer):
            self.patience.was_right()
        else:
            self.patience.was_short()
        return answer

    def _answer_within(self, question: Question, nodes: int, limit: float | None) -> Judgement:
        is_whole = limit == self.patience.limit_seconds
        busy = 0.0 if is_whole else self.patience.busy_seconds(limit)
        started = time.monotonic()
        answer = self._answer(replace(question, timeout_seconds=limit, busy_seconds=busy))
        if not _is_hang(answer):
            self.patience.note(time.monotonic() - started, nodes)
        return answer

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, each in a child; a callable, which has no file, here."""
        return ask_apart(question, self.patience.limit_seconds, self.memory_nbytes)

    def want(self) -> None:
        """From now on answers are wanted."""
        self._unwanted.clear()

    def unwant(self) -> None:
        """End the child that another thread asks here."""
        self._unwanted.set()
        if (worker := self._worker) is not None:
            worker.unwant()

    def close(self) -> None:
        """End the worker and its child, and wait for them."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _answer(self, question: Question) -> Judgement:
        """Answer; who ran out of memory in company, or was killed in it, is asked again alone."""
        most = self.memory_nbytes or default_limit_nbytes()
        share = self.memory_nbytes or (most and most // self._company.size)
        with self._company.together(self._unwanted.is_set):
            answer = self._asked(replace(question, memory_nbytes=share))
        seen = answer.signature
        if seen is None or seen.kind != "memory" or self._company.size == 1:
            return answer
        if self.memory_nbytes is not None and seen.message == too_much(self.memory_nbytes):
            return answer
        with self._company.alone(self._unwanted.is_set):
            return self._asked(replace(question, memory_nbytes=most))

    def _asked(self, question: Question) -> Judgement:
        """Ask a worker, and another one if it has ended meanwhile.

        Raises:
            CtkError: The oracle raised, or each worker has ended.
        """
        log = ""
        for _ in range(_WORKERS_PER_QUESTION):
            worker = self._worker = self._worker or self._start(question.target)
            answer = self._asked_of(worker, question)
            if isinstance(answer, Failure):
                raise Unwanted if answer.kind == Unwanted.__name__ else error_of(answer)
            if answer is not None:
                return _with_log(answer, worker)
            log = worker.tail()
            self.close()
        raise CtkError(
            f"the oracle's worker process ended while it was asked, {_WORKERS_PER_QUESTION} times "
            f"in a row: something kills it, or no memory is left\n{log}"
        )

    def _asked_of(self, worker: Worker, question: Question) -> Answer | None:
        """Return the worker's answer; None if it has ended."""
        if self._unwanted.is_set():
            raise Unwanted
        try:
            worker.ask(question)
            if self._unwanted.is_set():  # nobody saw that it was asked by then
                worker.unwant()
            answer = read_answer(worker.answers)
            worker.answered()
        except (BrokenPipeError, ConnectionResetError):
            return None
        except BaseException:  # Ctrl-C: the answer would be taken for that of the next question
            self.close()
            raise
        return answer


def _is_hang(answer: Judgement) -> bool:
    return answer.signature is not None and answer.signature.kind == "timeout"


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
    jobs = needs.jobs.count or cores()
    if jobs == 1:
        return ChildProcess(needs.timeout_seconds, needs.memory_nbytes)
    nursery, company = Nursery(), Company(jobs)
    patience = Patience(needs.timeout_seconds)
    members = [
        ChildProcess(
            memory_nbytes=needs.memory_nbytes,
            patience=patience,
            start=nursery.start_worker,
            company=company,
        )
        for _ in range(jobs)
    ]
    return Pool(members, nursery)


EXECUTOR = ExecutorKind("child", _serves, _start_for)
