"""Questions ahead: the same answers as one after the other, at the same time."""

import dataclasses
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest

import pytest

from ctk.compiler.errors import CtkError
from ctk.compiler.fx.copy import copy_graph_module
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle import speculation as module
from ctk.toolkit.oracle.answers.fingerprint import Digests
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.executors.pool import Pool
from ctk.toolkit.oracle.executors.protocol import Cancelled
from ctk.toolkit.oracle.question import (
    NotKnown,
    ParallelOracle,
    Question,
    look_up,
)
from ctk.toolkit.oracle.speculation import Lane, Speculative, speculating
from tests.helpers.reduce_graphs import chain

WAIT_SECONDS = 30
SLOW_SECONDS = {99: 8.0}
"""What an answer takes, by seed; others take no time."""


class Gate(Executor):
    """Answers when the test opens it; can be told that nobody wants the answer."""

    isolates = True

    def __init__(self, log: list[str], gates: dict[int, threading.Event]) -> None:
        self.log, self.gates = log, gates
        self.cancelled = threading.Event()

    def judge(self, question: Question) -> Judgement:
        seed, within = question.case.modes.seed, question.deadline_seconds
        self.log.append(f"ask {seed}" if within is None else f"ask {seed} within {within}")
        while not self.gates.setdefault(seed, opened()).wait(0.005):
            if self.cancelled.is_set():
                self.log.append(f"end {seed}")
                raise Cancelled
        if seed == 13:
            raise CtkError("thirteen")
        if within is not None and within < SLOW_SECONDS.get(seed, 0.0):
            return Judgement(Verdict.TIMEOUT, Signature("timeout"), seconds=within)
        return Judgement(Verdict.REPRODUCES if seed % 2 else Verdict.PASSES)

    def resume(self) -> None:
        self.cancelled.clear()

    def cancel(self) -> None:
        self.cancelled.set()


def opened() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class Asked:
    """The oracle of a gate."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.known: dict[int, Judgement] = {}

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        if not known_only:
            return self.executor.ask(question)
        if question.case.modes.seed not in self.known:
            raise NotKnown
        return self.known[question.case.modes.seed]


def about(cases: Sequence[Case], limits: Sequence[float] = ()) -> list[Question]:
    pairs = zip_longest(cases, limits)
    return [Question(case, deadline_seconds=limit) for case, limit in pairs]


@pytest.fixture(scope="module")
def base() -> Case:
    return chain(2, {})


@pytest.fixture
def case(base: Case) -> Callable[[int], Case]:
    def numbered(seed: int) -> Case:
        return dataclasses.replace(base, modes=dataclasses.replace(base.modes, seed=seed))

    return numbered


@dataclasses.dataclass
class Setting:
    log: list[str]
    gates: dict[int, threading.Event]
    ahead: Speculative


@contextmanager
def asking(jobs: int, closed: Sequence[int] = ()) -> Iterator[Setting]:
    """Ask ahead with so many askers; the gates of some cases are closed."""
    log: list[str] = []
    gates = {seed: threading.Event() for seed in closed}
    members = [Gate(log, gates) for _ in range(jobs)]
    with speculating(Pool(members), Asked, Digests()) as ahead:
        assert isinstance(ahead, Speculative)
        yield Setting(log, gates, ahead)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def test_what_is_anticipated_is_asked_at_once_and_only_once(case: Callable[[int], Case]):
    with asking(2, closed=[0, 1]) as it:
        it.ahead.anticipate(about([case(0), case(1), case(2)]))
        wait_until(lambda: len(it.log) == 2)
        assert sorted(it.log) == ["ask 0", "ask 1"]
        for gate in it.gates.values():
            gate.set()
        assert it.ahead.ask(Question(case(0))).verdict is Verdict.PASSES
        assert it.ahead.ask(Question(case(1))).verdict is Verdict.REPRODUCES
        wait_until(lambda: len(it.log) == 3)
        assert it.log[2] == "ask 2"


def test_what_nobody_anticipated_is_asked_all_the_same(case: Callable[[int], Case]):
    with asking(2) as it:
        assert [it.ahead.ask(Question(case(seed))).verdict for seed in (1, 2)] == [
            Verdict.REPRODUCES,
            Verdict.PASSES,
        ]


@pytest.fixture(autouse=True)
def nothing_is_cheap_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every unwanted question seem to hang: these tests take no time."""
    monkeypatch.setattr(module, "RESTART_SECONDS", -1.0)


def test_who_waits_comes_first_and_takes_the_place_of_what_is_not_wanted(
    case: Callable[[int], Case],
):
    with asking(2, closed=[0, 2]) as it:
        it.ahead.anticipate(about([case(0), case(2)]))
        wait_until(lambda: len(it.log) == 2)
        it.ahead.anticipate(about([case(1), case(0)]))
        assert it.ahead.ask(Question(case(1))).verdict is Verdict.REPRODUCES
        assert it.log[2:] == ["end 2", "ask 1"]


def test_an_unwanted_question_is_let_finish_where_there_is_room(case: Callable[[int], Case]):
    with asking(2, closed=[0]) as it:
        it.ahead.anticipate(about([case(0)]))
        wait_until(lambda: it.log == ["ask 0"])
        it.ahead.anticipate(about([case(1)]))
        assert it.ahead.ask(Question(case(1))).verdict is Verdict.REPRODUCES
        it.gates[0].set()
        assert it.ahead.ask(Question(case(0))).verdict is Verdict.PASSES
        assert it.log == ["ask 0", "ask 1"]


def test_an_unwanted_question_that_is_soon_done_keeps_its_place(
    case: Callable[[int], Case], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "RESTART_SECONDS", WAIT_SECONDS)
    with asking(2, closed=[0, 2]) as it:
        it.ahead.anticipate(about([case(0), case(2)]))
        wait_until(lambda: len(it.log) == 2)
        it.ahead.anticipate(about([case(1), case(0)]))
        threading.Timer(0.1, it.gates[2].set).start()
        assert it.ahead.ask(Question(case(1))).verdict is Verdict.REPRODUCES
        assert it.log[2:] == ["ask 1"]


def test_what_was_ended_can_be_wanted_again(case: Callable[[int], Case]):
    with asking(1 + 1, closed=[0, 2]) as it:
        it.ahead.anticipate(about([case(0), case(2)]))
        wait_until(lambda: len(it.log) == 2)
        it.ahead.anticipate(about([case(1)]))
        it.ahead.ask(Question(case(1)))
        for gate in it.gates.values():
            gate.set()
        assert it.ahead.ask(Question(case(0))).verdict is Verdict.PASSES
        assert it.ahead.ask(Question(case(2))).verdict is Verdict.PASSES


def test_an_error_is_raised_where_its_question_is_asked_and_nowhere_else(
    case: Callable[[int], Case],
):
    with asking(2) as it:
        it.ahead.anticipate(about([case(13), case(1)]))
        assert it.ahead.ask(Question(case(1))).verdict is Verdict.REPRODUCES
        with pytest.raises(CtkError, match="thirteen"):
            it.ahead.ask(Question(case(13)))
        assert it.ahead.ask(Question(case(2))).verdict is Verdict.PASSES


def test_equal_cases_are_one_question(case: Callable[[int], Case]):
    with asking(2, closed=[0]) as it:
        it.ahead.anticipate(about([case(0), case(0)]))
        wait_until(lambda: it.log == ["ask 0"])
        it.gates[0].set()
        it.ahead.ask(Question(case(0)))
        assert it.log == ["ask 0"]


def test_only_answers_of_earlier_runs_are_recalled(base: Case, case: Callable[[int], Case]):
    oracle = Asked(Gate([], {}))
    oracle.known[5] = Judgement(Verdict.FLAKY)
    lanes = [Lane(oracle, oracle.executor) for _ in range(2)]
    with Speculative(lanes) as ahead:
        assert look_up(ahead, Question(case(5))) == Judgement(Verdict.FLAKY)
        ahead.anticipate(about([case(5), case(1)]))
        oracle.known[1] = Judgement(Verdict.REPRODUCES)  # the journal has it by now
        assert look_up(ahead, Question(case(1))) is None
        assert ahead.ask(Question(case(1))).verdict is Verdict.REPRODUCES
        assert look_up(ahead, Question(case(1))) is not None


def test_closing_ends_what_runs(case: Callable[[int], Case]):
    with asking(2, closed=[0, 2]) as it:
        it.ahead.anticipate(about([case(0), case(2)]))
        wait_until(lambda: len(it.log) == 2)
    assert sorted(it.log) == ["ask 0", "ask 2", "end 0", "end 2"]
    assert not any(thread.is_alive() for thread in it.ahead._threads)


def test_one_executor_is_asked_directly(base: Case):
    with speculating(Gate([], {}), Asked, Digests()) as oracle:
        assert not isinstance(oracle, ParallelOracle)


def test_ahead_is_what_the_driver_looks_for():
    with asking(2) as it:
        assert isinstance(it.ahead, ParallelOracle)
        assert it.ahead.jobs == 2


def test_what_a_shorter_limit_has_ended_is_asked_again(case: Callable[[int], Case]):
    with asking(2) as it:
        it.ahead.anticipate(about([case(0), case(99)], [2.0, 2.0]))
        wait_until(lambda: len(it.log) == 2)
        assert it.ahead.ask(Question(case(99), deadline_seconds=8.0)).verdict is Verdict.REPRODUCES
        assert it.log[2:] == ["ask 99 within 8.0"]


def test_what_a_longer_limit_has_ended_stands(case: Callable[[int], Case]):
    with asking(2) as it:
        it.ahead.anticipate(about([case(0), case(99)], [2.0, 4.0]))
        wait_until(lambda: len(it.log) == 2)
        assert it.ahead.ask(Question(case(99), deadline_seconds=2.0)).verdict is Verdict.TIMEOUT
        assert len(it.log) == 2


def test_a_question_that_waits_takes_the_limit_that_holds_by_now(case: Callable[[int], Case]):
    with asking(2, closed=[0, 2]) as it:
        it.ahead.anticipate(about([case(0), case(2), case(99)], [1.0, 1.0, 1.0]))
        wait_until(lambda: len(it.log) == 2)
        it.ahead.anticipate(about([case(0), case(2), case(99)], [1.0, 1.0, 9.0]))
        for gate in it.gates.values():
            gate.set()
        assert it.ahead.ask(Question(case(99), deadline_seconds=9.0)).verdict is Verdict.REPRODUCES
        assert it.log[2:] == ["ask 99 within 9.0"]


def test_an_answer_that_nobody_comes_for_holds_no_case(case: Callable[[int], Case]):
    with asking(2) as it:
        guess = dataclasses.replace(case(1001), graph=copy_graph_module(case(1).graph))
        graph = weakref.ref(guess.graph)
        first, last = case(1), case(2)
        it.ahead.anticipate(about([first, guess]))
        it.ahead.ask(Question(first))
        wait_until(lambda: "ask 1001" in it.log)
        del guess
        it.ahead.anticipate(about([last]))
        it.ahead.ask(Question(last))
        wait_until(lambda: gc.collect() >= 0 and graph() is None)
