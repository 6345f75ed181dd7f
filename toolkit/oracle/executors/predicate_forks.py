"""Ask a predicate of the user several questions at once, each in a fork of this process.

A predicate is any Python callable: it cannot be sent to another process, but a fork has it with
all of its state. This has three limits:

1. Changes that the predicate makes (counters, caches, global variables) stay in the fork.
2. A fork runs torch on one thread, because OpenMP's threads do not survive a fork. A predicate that
   depends on the order of sums may answer otherwise.
3. CUDA does not work in a fork of a process that uses it, which is refused. Locks held by other
   threads are never released in a fork, which cannot be detected.

An exception of the predicate is raised by a second call in this process, to keep its type and
trace. For one thread; Ctrl-C ends all forks.
"""

import io
import os
import selectors
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import torch

from ctk.compiler.errors import ChildError, ConfigError, CtkError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.executors.pool import ASKED_AT_MOST
from ctk.toolkit.oracle.executors.protocol import Failure, failure_of, read_answer, write_line
from ctk.toolkit.oracle.question import DirectOracle, NotKnown, Oracle, Question
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.forks import ForkedChild, flush_streams
from ctk.toolkit.processes.groups import wait_for
from ctk.toolkit.processes.signals import defer_interrupts

Ask = Callable[[Case], Judgement]


@dataclass(slots=True)
class _Fork:
    """A running question, and the part of its answer that was received."""

    child: ForkedChild
    received: bytes = b""


class PredicateForks(Closeable):
    """Asks a predicate, also speculatively; a context manager that ends the forks.

    Args:
        on_answer: Called in this process with each requested answer, in order.

    Raises:
        ConfigError: This process cannot be forked.
    """

    def __init__(
        self,
        ask: Ask,
        jobs: int,
        digests: Digests | None = None,
        on_answer: Callable[[Judgement], None] = lambda judgement: None,
    ) -> None:
        _check_forkable()
        self.jobs = jobs
        self._on_answer = on_answer
        self._ask, self._digests = ask, digests or Digests()
        self._forks: dict[str, _Fork] = {}
        self._answers: dict[str, Judgement | Failure | int] = {}

    def anticipate(self, questions: Sequence[Question]) -> None:
        """Start forks for some questions, in order; end forks for others to make room."""
        wanted = {fingerprint(asked.case, self._digests): asked.case for asked in questions}
        self._answers = {key: answer for key, answer in self._answers.items() if key in wanted}
        for key, case in [*wanted.items()][: self.jobs]:
            if key not in self._answers and key not in self._forks:
                self._make_room([*wanted])
                if len(self._forks) < self.jobs:
                    self._start(key, case)

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Return the answer, which may have arrived already.

        Raises:
            CtkError: The predicate has ended its process.
            Exception: An exception of the predicate.
        """
        if known_only:
            raise NotKnown
        case = question.case
        key = fingerprint(case, self._digests)
        try:
            for _ in range(ASKED_AT_MOST):
                found = self._await_answer(key, case)
                if not isinstance(found, int):
                    break
                if found != -signal.SIGKILL:  # the predicate itself would end again
                    raise _error_for(found)
            else:
                raise _error_for(-signal.SIGKILL)
        except BaseException:  # Ctrl-C as well
            self.close()
            raise
        return _report(self._ask(case) if isinstance(found, Failure) else found, self._on_answer)

    def _await_answer(self, key: str, case: Case) -> Judgement | Failure | int:
        if key not in self._answers and key not in self._forks:
            self._make_room([key])
            self._start(key, case)
        while key not in self._answers:
            self._wait()
        return self._answers.pop(key)

    def close(self) -> None:
        """End all forks."""
        while self._forks:
            self._forks.popitem()[1].child.end()

    def _make_room(self, wanted: Sequence[str]) -> None:
        unwanted = [key for key in self._forks if key not in wanted]
        if len(self._forks) >= self.jobs and unwanted:
            self._forks.pop(unwanted[0]).child.end()

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            for key, fork in self._forks.items():
                selector.register(fork.child.answers, selectors.EVENT_READ, key)
            for ready, _ in selector.select():
                fork = self._forks[ready.data]
                data = os.read(fork.child.answers.fileno(), 1 << 16)
                fork.received += data
                if not data:
                    self._answers[ready.data] = _read_answer(self._forks.pop(ready.data))

    def _start(self, key: str, case: Case) -> None:
        flush_streams()
        with defer_interrupts():  # after the fork, `close` must know of it
            self._forks[key] = _Fork(ForkedChild.start(partial(self._serve, case)))

    def _serve(self, case: Case, requests: BinaryIO, answers: BinaryIO) -> int:
        torch.set_num_threads(1)
        try:
            answer = self._ask(case)
        except Exception as error:
            answer = failure_of(error)
        write_line(answers, answer)
        flush_streams()
        return 0


@contextmanager
def ask_in_forks(
    ask: Ask, jobs: int, digests: Digests, on_answer: Callable[[Judgement], None]
) -> Generator[Oracle]:
    """Return an oracle that asks a predicate: in this process with one job, in forks with more.

    Raises:
        ConfigError: This process cannot be forked.
    """
    if jobs == 1:
        yield DirectOracle(lambda case: _report(ask(case), on_answer))
        return
    with PredicateForks(ask, jobs, digests, on_answer) as forked:
        yield forked


def _report(judgement: Judgement, on_answer: Callable[[Judgement], None]) -> Judgement:
    on_answer(judgement)
    return judgement


def _read_answer(fork: _Fork) -> Judgement | Failure | int:
    """Return the answer of a fork, or its exit status if it has not answered."""
    fork.child.close()
    status = wait_for(fork.child.pid)
    answer = read_answer(io.BytesIO(fork.received))
    return answer if answer is not None else status


def _error_for(status: int) -> CtkError:
    how = f"signal {-status}" if status < 0 else f"status {status}"
    return ChildError(
        f"the predicate has ended its process ({how}); if such a candidate is a failure, ask in a "
        "process of your own and return True for its end"
    )


def _check_forkable() -> None:
    if not hasattr(os, "fork"):
        raise ConfigError("several jobs fork this process, which this system cannot; use jobs=1")
    if torch.cuda.is_initialized():
        raise ConfigError(
            "several jobs fork this process, and CUDA is in use in it: it does not work in a fork\n"
            "next: jobs=1, or let the predicate start a process that uses the GPU"
        )
