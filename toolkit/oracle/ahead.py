"""Ask several questions at once, with the same result as one after the other.

Whoever asks says before each question which ones will most likely be next. They are asked by idle
askers meanwhile, each in a thread of its own, and an answer that is there already costs no time:

    ahead.anticipate([a, b, c])     two askers: a and b are asked
    ahead(a)                        waits for the one that runs
    ahead.anticipate([c, d])        b is not wanted any more: c is asked first, then d
    ahead(c)

Answers depend on the question alone, so they are the same whenever they are asked; which of them
count, and in which order, is up to who asks. A case is known by its fingerprint. How long an answer
may take is a part of the question: what was ended by a shorter limit than the one that holds when
it is wanted is asked again.

What it does not do: guess (the driver of the reducer does), or ask twice what a journal knows.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, Protocol, runtime_checkable

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.executors.base import Executor, Unavailable
from ctk.toolkit.oracle.executors.pool import ASKED_AT_MOST, READY_SECONDS, lost, nobody_ready
from ctk.toolkit.oracle.executors.protocol import Unwanted
from ctk.toolkit.processes.closeable import Closeable

Ask = Callable[[Case, float | None], Judgement]
"""Judges a case within so many seconds; None: as long as the whole limit."""

_LOOK_SECONDS = 0.25
"""How often who waits looks whether a question hangs that nobody wants any more."""

_HANGS_AFTER = 2.0
"""Of the usual time: a question that takes longer seems to hang."""

ANEW_SECONDS = 0.5
"""What it costs to end a question: the next child has everything to do for the first time."""

_JOIN_SECONDS = 2.0
_REMEMBERED = 32


@runtime_checkable
class Anticipating(Protocol):
    """An oracle that can be told what it will be asked.

    Attributes:
        jobs: How many questions it can work on at the same time.
    """

    jobs: int

    def __call__(self, case: Case) -> Judgement:
        """Judge a case."""
        ...

    def anticipate(self, cases: Sequence[Case]) -> None:
        """Take note of what will most likely be asked next, the likeliest first.

        What was told before is forgotten.
        """
        ...


class TimedOracle(Protocol):
    """An oracle that knows answers of earlier runs.

    It is told how long an answer may take; None: as long as the whole limit.
    """

    def __call__(self, case: Case, within: float | None = None, /) -> Judgement:
        """Judge a case."""
        ...

    def recall(self, case: Case, within: float | None = None, /) -> Judgement | None:
        """Return the answer that is known and holds for this limit, if there is one."""
        ...


@dataclass(frozen=True, slots=True)
class Asker:
    """Who answers one question at a time.

    Attributes:
        ask: Judges a case.
        executor: Who runs it, told when an answer is wanted no more.
    """

    ask: Ask
    executor: Executor


@dataclass(slots=True, eq=False)
class _Question:
    """What was, is or will be asked.

    Attributes:
        case: What about; let go of with the answer, which may never be wanted.
        within: How long the answer may take.
        state: Whether somebody works on it.
        asker: Who does.
        started: Since when (`time.monotonic`).
        answer: What came of it.
        error: What was raised instead.
        losses: How many askers have ended over it.
    """

    case: Case | None
    within: float | None = None
    state: Literal["waiting", "running", "done"] = "waiting"
    asker: Asker | None = None
    started: float = 0.0
    answer: Judgement | None = None
    error: BaseException | None = None
    losses: int = 0

    def had_less_than(self, within: float | None) -> bool:
        """Return whether a shorter limit than this has ended it."""
        answer = self.answer
        if answer is None or answer.seconds is None or self.within is None:
            return False
        return not answer.holds(within)

    def result(self) -> Judgement:
        if self.error is not None:
            raise self.error
        assert self.answer is not None
        return self.answer


class Ahead(Closeable):
    """Asks several questions at once; a context manager that ends them. For one thread.

    What an asker raises is raised where the question is asked, and never if it is not.

    Args:
        askers: Who answers, one question each at a time.
        recall: Returns the answer of an earlier run, if there is one.
        digests: Of the tensors of cases.
    """

    def __init__(
        self,
        askers: Sequence[Asker],
        recall: Callable[[Case, float | None], Judgement | None] = lambda case, within: None,
        digests: Digests | None = None,
    ) -> None:
        self.jobs = len(askers)
        self._recall, self._digests = recall, digests or Digests()
        self._questions: dict[str, _Question] = {}
        self._order: list[str] = []
        self._told: dict[int, tuple[Case, str]] = {}
        self._seconds = deque[float](maxlen=_REMEMBERED)
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._work, args=(asker,), daemon=True) for asker in askers
        ]
        for thread in self._threads:
            thread.start()

    def __call__(self, case: Case, within: float | None = None) -> Judgement:
        """Return the answer, which may be there already; Ctrl-C ends everything that runs."""
        key = self._key(case)
        with self._changed:
            self._wanted(key, case, within)
            self._order = [key, *(other for other in self._order if other != key)]
            self._changed.notify_all()
        question = self._awaited(key)
        return self(case, within) if question.had_less_than(within) else question.result()

    def anticipate(self, cases: Sequence[Case], within: Sequence[float | None] = ()) -> None:
        """Ask about some cases as soon as somebody is idle, in their order; forget others.

        Args:
            cases: The likeliest first.
            within: How long each answer may take; the whole limit where nothing is said.
        """
        told = {id(case): (case, self._key(case)) for case in cases}
        self._told = told
        keys = dict.fromkeys(key for _, key in told.values())
        of_key = {key: case for case, key in told.values()}
        limits = {told[id(case)][1]: limit for case, limit in zip_longest(cases, within)}
        new = {
            key
            for key, case in of_key.items()
            if key not in self._questions and not self._recall(case, limits[key])
        }
        with self._changed:
            self._order = [key for key in keys if key in new or key in self._questions]
            for key in self._order:
                self._wanted(key, of_key[key], limits[key])
            self._forget()
            self._make_room()
            self._changed.notify_all()

    def recall(self, case: Case, within: float | None = None) -> Judgement | None:
        """Return the answer of an earlier run; of this one, only what was asked for counts."""
        return None if self._key(case) in self._questions else self._recall(case, within)

    def close(self) -> None:
        """End what runs; nothing is answered any more."""
        with self._changed:
            self._is_closed = True
            self._order, self._told = [], {}
            self._forget()
            for question in self._running():
                _unwant(question)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def _key(self, case: Case) -> str:
        told = self._told.get(id(case))
        return told[1] if told is not None else fingerprint(case, self._digests)

    def _wanted(self, key: str, case: Case, within: float | None) -> None:
        """Take note of a question; with another limit, of one that has not begun."""
        question = self._questions.setdefault(key, _Question(case))
        if question.state == "waiting":
            question.within = within

    def _awaited(self, key: str) -> _Question:
        with self._changed:
            question, since = self._questions[key], time.monotonic()
            try:
                while question.state != "done":
                    self._make_room()
                    self._changed.wait(_LOOK_SECONDS)
                    since = time.monotonic() if self._running() else since
                    if time.monotonic() - since > READY_SECONDS:
                        raise nobody_ready()
            except BaseException:  # Ctrl-C
                self._order = []
                for running in self._running():
                    _unwant(running)
                raise
            del self._questions[key]
            self._order = self._order[1:]
            return question

    def _forget(self) -> None:
        """Drop what waits and is not wanted any more."""
        for key in [key for key, each in self._questions.items() if each.state == "waiting"]:
            if key not in self._order:
                del self._questions[key]

    def _running(self) -> list[_Question]:
        return [each for each in self._questions.values() if each.state == "running"]

    def _make_room(self) -> None:
        """Let unwanted questions end where wanted ones wait for an asker, if that is worth it."""
        waiting = [key for key in self._order if self._questions[key].state == "waiting"]
        running = self._running()
        free = self.jobs - len(running)
        wanted = {id(self._questions[key]) for key in self._order}
        for question in [each for each in running if id(each) not in wanted]:
            if free < len(waiting) and self._takes_long(question):
                _unwant(question)
                free += 1

    def _takes_long(self, question: _Question) -> bool:
        """Return whether a question is not soon done anyway, by what others have taken: what has
        begun may be asked for again, and who was ended has to start anew.
        """
        usual = statistics.median(self._seconds) if self._seconds else 0.0
        took = time.monotonic() - question.started
        return took > _HANGS_AFTER * usual + ANEW_SECONDS or usual - took > ANEW_SECONDS

    def _work(self, asker: Asker) -> None:
        """Be an asker's thread."""
        while (question := self._next(asker)) is not None:
            answer, error = None, None
            assert question.case is not None
            try:
                answer = asker.ask(question.case, question.within)
            except BaseException as raised:
                error = raised
            self._take(question, answer, error)

    def _next(self, asker: Asker) -> _Question | None:
        while not asker.executor.is_ready(_LOOK_SECONDS):
            if self._is_closed:
                return None
        with self._changed:
            while not self._is_closed:
                for key in self._order:
                    question = self._questions[key]
                    if question.state == "waiting":
                        question.state, question.asker = "running", asker
                        question.started = time.monotonic()
                        asker.executor.want()
                        return question
                self._changed.wait()
            return None

    def _take(
        self, question: _Question, answer: Judgement | None, error: BaseException | None
    ) -> None:
        with self._changed:
            question.asker = None
            if isinstance(error, Unavailable):
                question.losses += 1
                error = lost(error) if question.losses == ASKED_AT_MOST else error
            if isinstance(error, Unwanted | Unavailable):  # if it is wanted still, it waits again
                question.state = "waiting"
                self._forget()
            else:
                question.state, question.answer, question.error = "done", answer, error
                question.case = None
                self._seconds.append(time.monotonic() - question.started)
            self._changed.notify_all()


def _unwant(question: _Question) -> None:
    if question.asker is not None:
        question.asker.executor.unwant()


@contextmanager
def asked_ahead(
    executor: Executor, oracle_with: Callable[[Executor], TimedOracle], digests: Digests
) -> Generator[TimedOracle]:
    """Return the oracle of an executor, which asks ahead if that can answer several questions.

    Args:
        executor: Who answers.
        oracle_with: Makes the oracle that asks one of them.
        digests: Of the tensors of cases.
    """
    if len(executor.members) == 1:
        yield oracle_with(executor)
        return
    askers = [Asker(oracle_with(member), member) for member in executor.members]
    with Ahead(askers, oracle_with(executor).recall, digests) as ahead:
        yield ahead
