"""Ask several questions at the same time, with the same result as one after the other.

Before each question the caller announces the questions that are likely to follow. Idle lanes work
on them meanwhile, each in a thread of its own, so that an answer may be there when it is wanted:

    speculative.anticipate([a, b, c])     two lanes: a and b are asked
    speculative.ask(a)                    waits for a
    speculative.anticipate([c, d])        b is stopped: c is asked first, then d
    speculative.ask(c)

An answer depends on its question alone, so it does not matter when it is computed; which answers
count, and in which order, is up to the caller. A case is identified by its fingerprint. The
deadline is a part of the question: an answer that a shorter deadline has cut off is asked again.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.executors.base import Executor, Unavailable
from ctk.toolkit.oracle.executors.pool import (
    ASKED_AT_MOST,
    READY_SECONDS,
    make_lost_error,
    make_not_ready_error,
)
from ctk.toolkit.oracle.executors.protocol import Cancelled
from ctk.toolkit.oracle.question import NotKnown, Oracle, Question, look_up
from ctk.toolkit.processes.closeable import Closeable

_LOOK_SECONDS = 0.25
"""How often a waiting caller checks whether an unwanted question hangs."""

_HANGS_AFTER = 2.0
"""A question that takes more than so many times the usual time seems to hang."""

RESTART_SECONDS = 0.5
"""Cost of stopping a question: the next child starts cold."""

_JOIN_SECONDS = 2.0
_REMEMBERED = 32


@dataclass(frozen=True, slots=True)
class Lane:
    """Answers one question at a time; stopped when the answer is not wanted any more."""

    oracle: Oracle
    executor: Executor


@dataclass(slots=True, eq=False)
class _Task:
    """A question that was, is or will be asked.

    Attributes:
        question: Dropped once answered: a speculative answer may never be collected.
    """

    question: Question | None
    deadline_seconds: float | None = None
    state: Literal["waiting", "running", "done"] = "waiting"
    lane: Lane | None = None
    started: float = 0.0
    answer: Judgement | None = None
    error: BaseException | None = None
    losses: int = 0

    def had_less_than(self, seconds: float | None) -> bool:
        """Return whether a shorter deadline than this has cut the answer off."""
        answer = self.answer
        if answer is None or answer.seconds is None or self.deadline_seconds is None:
            return False
        return not answer.holds(seconds)

    def result(self) -> Judgement:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Speculative(Closeable):
    """The layer that asks ahead; a context manager that stops all lanes. For one thread.

    An exception of a lane is raised where its question is asked, and never if it is not. The first
    lane also looks up known answers.
    """

    def __init__(self, lanes: Sequence[Lane], digests: Digests | None = None) -> None:
        self._known, self._digests = lanes[0].oracle, digests or Digests()
        self._jobs = len(lanes)
        self._tasks: dict[str, _Task] = {}
        self._order: list[str] = []
        self._announced: dict[int, tuple[Case, str]] = {}
        self._seconds = deque[float](maxlen=_REMEMBERED)
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), daemon=True) for lane in lanes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def jobs(self) -> int:
        """Number of lanes."""
        return self._jobs

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Return the answer, which may be there already; Ctrl-C stops all lanes.

        Speculative answers are not known: they count when they are asked for.
        """
        key = self._key(question.case)
        if known_only:
            if key in self._tasks:
                raise NotKnown
            return self._known.ask(question, known_only=True)
        with self._changed:
            self._want(key, question)
            self._order = [key, *(other for other in self._order if other != key)]
            self._changed.notify_all()
        task, seconds = self._wait_for(key), question.deadline_seconds
        return self.ask(question) if task.had_less_than(seconds) else task.result()

    def anticipate(self, questions: Sequence[Question]) -> None:
        """Let idle lanes ask some questions, in their order; forget all others."""
        self._announced = {id(each.case): (each.case, self._key(each.case)) for each in questions}
        by_key: dict[str, Question] = {}
        for question in questions:
            by_key[self._key(question.case)] = question
        new = {
            key
            for key, question in by_key.items()
            if key not in self._tasks and not look_up(self._known, question)
        }
        with self._changed:
            self._order = [key for key in by_key if key in new or key in self._tasks]
            for key in self._order:
                self._want(key, by_key[key])
            self._forget()
            self._make_room()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop all lanes."""
        with self._changed:
            self._is_closed = True
            self._order, self._announced = [], {}
            self._forget()
            for task in self._running():
                _stop(task)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _key(self, case: Case) -> str:
        announced = self._announced.get(id(case))
        return announced[1] if announced is not None else fingerprint(case, self._digests)

    def _want(self, key: str, question: Question) -> None:
        """Add a task; a waiting task takes the present deadline."""
        task = self._tasks.setdefault(key, _Task(question))
        if task.state == "waiting":
            task.question, task.deadline_seconds = question, question.deadline_seconds

    def _wait_for(self, key: str) -> _Task:
        with self._changed:
            task, since = self._tasks[key], time.monotonic()
            try:
                while task.state != "done":
                    self._make_room()
                    self._changed.wait(_LOOK_SECONDS)
                    since = time.monotonic() if self._running() else since
                    if time.monotonic() - since > READY_SECONDS:
                        raise make_not_ready_error()
            except BaseException:  # Ctrl-C
                self._order = []
                for running in self._running():
                    _stop(running)
                raise
            del self._tasks[key]
            self._order = self._order[1:]
            return task

    def _forget(self) -> None:
        for key in [key for key, task in self._tasks.items() if task.state == "waiting"]:
            if key not in self._order:
                del self._tasks[key]

    def _running(self) -> list[_Task]:
        return [task for task in self._tasks.values() if task.state == "running"]

    def _make_room(self) -> None:
        """Stop unwanted tasks where wanted ones wait for a lane, if that is worth it."""
        waiting = [key for key in self._order if self._tasks[key].state == "waiting"]
        running = self._running()
        free = self._jobs - len(running)
        wanted = {id(self._tasks[key]) for key in self._order}
        for task in [task for task in running if id(task) not in wanted]:
            if free < len(waiting) and self._is_long(task):
                _stop(task)
                free += 1

    def _is_long(self, task: _Task) -> bool:
        """Return whether stopping a task gains time: it may be wanted again, and a stopped lane
        starts cold, so a task that is nearly done by the usual time is left to finish.
        """
        usual = statistics.median(self._seconds) if self._seconds else 0.0
        took = time.monotonic() - task.started
        return took > _HANGS_AFTER * usual + RESTART_SECONDS or usual - took > RESTART_SECONDS

    def _work(self, lane: Lane) -> None:
        while (task := self._next(lane)) is not None:
            answer, error = None, None
            assert task.question is not None
            try:
                answer = lane.oracle.ask(task.question)
            except BaseException as raised:
                error = raised
            self._finish(task, answer, error)

    def _next(self, lane: Lane) -> _Task | None:
        while not lane.executor.is_ready(_LOOK_SECONDS):
            if self._is_closed:
                return None
        with self._changed:
            while not self._is_closed:
                for key in self._order:
                    task = self._tasks[key]
                    if task.state == "waiting":
                        task.state, task.lane = "running", lane
                        task.started = time.monotonic()
                        lane.executor.resume()
                        return task
                self._changed.wait()
            return None

    def _finish(self, task: _Task, answer: Judgement | None, error: BaseException | None) -> None:
        with self._changed:
            task.lane = None
            if isinstance(error, Unavailable):
                task.losses += 1
                error = make_lost_error(error) if task.losses == ASKED_AT_MOST else error
            if isinstance(error, Cancelled | Unavailable):  # waits again, if it is still wanted
                task.state = "waiting"
                self._forget()
            else:
                task.state, task.answer, task.error = "done", answer, error
                task.question = None
                self._seconds.append(time.monotonic() - task.started)
            self._changed.notify_all()


def _stop(task: _Task) -> None:
    if task.lane is not None:
        task.lane.executor.cancel()


@contextmanager
def speculating(
    executor: Executor, oracle_over: Callable[[Executor], Oracle], digests: Digests
) -> Generator[Oracle]:
    """Yield the oracle of an executor; it asks ahead if the executor has several members."""
    if len(executor.members) == 1:
        yield oracle_over(executor)
        return
    lanes = [Lane(oracle_over(member), member) for member in executor.members]
    with Speculative(lanes, digests) as speculative:
        yield speculative
