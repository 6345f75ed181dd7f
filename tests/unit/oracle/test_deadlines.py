"""How long a candidate may take: counted in limits given, never in seconds measured."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.deadlines import (
    COMMON_NODES,
    DOUBT,
    DOUBTED,
    FACTOR,
    FLOOR_SECONDS,
    UNLIMITED_FLOOR_SECONDS,
    UNLIMITED_SECONDS,
    Deadlines,
    TimeLimits,
)
from ctk.toolkit.oracle.executors import executor_for
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.protocol import ChildQuestion
from ctk.toolkit.oracle.question import NotKnown, Question, look_up
from ctk.toolkit.processes.tree import CoreWaits
from tests.unit.oracle.test_executors import case_for

HANG = Signature("timeout")


@dataclass
class Program:
    """Stands for whoever runs a question: counts the seconds that it is waited for.

    Attributes:
        needs: What it takes.
        wanted: Whether a hang is what is looked for.
        at_its_end: What it says when it is let finish.
        limits: With which it was asked.
    """

    needs: float = math.inf
    wanted: bool = False
    at_its_end: Verdict = Verdict.PASSES
    limits: list[float | None] = field(default_factory=list[float | None])

    def __call__(self, within: float | None) -> Judgement:
        self.limits.append(within)
        if within is None or self.needs <= within:
            return Judgement(self.at_its_end, seconds=self.needs)
        verdict = Verdict.REPRODUCES if self.wanted else Verdict.TIMEOUT
        return Judgement(verdict, HANG, seconds=within)


def quick(patience: TimeLimits, seconds: float, nodes: int = 0) -> None:
    """Take an answer that took so long."""
    patience.ask_within(Program(seconds), nodes)


def test_the_limits() -> None:
    patience = TimeLimits(60.0)
    assert patience.seconds() == 60.0  # nothing is known yet
    quick(patience, 0.1)
    assert patience.seconds() == FLOOR_SECONDS
    quick(patience, 2.0)
    quick(patience, 1.0)
    assert patience.seconds() == 2.0 * FACTOR
    patience.answers.append((0, 30.0))
    assert patience.seconds() == 60.0  # never above the user's


def test_without_a_limit_candidates_have_one_all_the_same() -> None:
    patience = TimeLimits(None)
    assert patience.seconds() is None
    quick(patience, 0.1)
    assert patience.seconds() == UNLIMITED_FLOOR_SECONDS
    assert patience.whole_seconds == UNLIMITED_SECONDS


def test_a_small_graph_has_less_time_than_the_large_one_before_it() -> None:
    patience = TimeLimits(600.0)
    quick(patience, 8.0, 16 * COMMON_NODES - COMMON_NODES)
    assert patience.seconds(COMMON_NODES) == FACTOR * 8.0 * 2 / 16
    assert patience.seconds(5000) == FACTOR * 8.0


def test_old_answers_are_forgotten() -> None:
    patience = TimeLimits(600.0)
    for seconds in (30.0, *[0.5] * 32):
        quick(patience, seconds)
    assert patience.seconds() == FACTOR * 0.5


def test_the_first_limits_that_run_out_are_doubted_and_then_believed() -> None:
    patience, hang = TimeLimits(60.0), Program()
    quick(patience, 0.1)
    for _ in range(8):
        assert patience.ask_within(hang).verdict is Verdict.TIMEOUT
    assert hang.limits == [FLOOR_SECONDS, DOUBT * FLOOR_SECONDS] * DOUBTED + [FLOOR_SECONDS] * 6


def test_a_limit_that_proves_too_short_makes_all_longer() -> None:
    patience, slow = TimeLimits(600.0), Program(15.0, at_its_end=Verdict.REPRODUCES)
    quick(patience, 1.0)
    patience.ask_within(Program())
    assert patience.proved == 1
    assert patience.ask_within(slow).verdict is Verdict.REPRODUCES
    assert slow.limits == [FACTOR, DOUBT * FACTOR]
    assert (patience.factor, patience.proved) == (2 * FACTOR, 0)


def test_there_is_no_doubt_beyond_the_limit_of_the_user() -> None:
    patience, hang = TimeLimits(FLOOR_SECONDS), Program()
    quick(patience, 1.0)
    patience.ask_within(hang)
    assert hang.limits == [FLOOR_SECONDS]


def test_each_hang_that_is_looked_for_is_asked_about_with_the_whole_limit() -> None:
    patience, hang = TimeLimits(60.0), Program(wanted=True)
    quick(patience, 0.1)
    for _ in range(3):
        assert patience.ask_within(hang).verdict is Verdict.REPRODUCES
    assert hang.limits == [FLOOR_SECONDS, 60.0] * 3


def test_a_slow_candidate_is_no_hang_however_many_were_proved_before() -> None:
    patience = TimeLimits(60.0)
    quick(patience, 0.1)
    patience.ask_within(Program(wanted=True))
    assert patience.ask_within(Program(4.0, wanted=True)).verdict is Verdict.PASSES


def test_only_what_a_short_limit_has_ended_is_open() -> None:
    patience = TimeLimits(60.0)
    ended = [Judgement(Verdict.TIMEOUT, HANG, seconds=seconds) for seconds in (2.0, 60.0)]
    assert [patience.is_open(each) for each in ended] == [True, False]
    assert not patience.is_open(Judgement(Verdict.PASSES, seconds=2.0))


@dataclass
class Known:
    """An oracle within limits whose answers are remembered, as by a journal."""

    program: Program
    known: dict[float | None, Judgement] = field(default_factory=dict[float | None, Judgement])

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        within = question.deadline_seconds
        if not known_only:
            return self.known.setdefault(within, self.program(within))
        if within not in self.known:
            raise NotKnown
        return self.known[within]


def test_what_was_answered_is_recalled_with_its_limits_and_half_an_answer_is_none() -> None:
    oracle, question = Known(Program(4.0)), Question(case_for("right"))
    before, after = TimeLimits(60.0), TimeLimits(60.0)
    for patience in (before, after):
        quick(patience, 0.1)
    short = replace(question, deadline_seconds=FLOOR_SECONDS)
    oracle.ask(short)  # a run that was killed while it doubted
    assert look_up(Deadlines(oracle, after), question) is None
    assert (after.factor, len(after.answers)) == (FACTOR, 1)
    answer = Deadlines(oracle, before).ask(question)
    assert look_up(Deadlines(oracle, after), question) == answer
    assert after == before
    assert before.factor == 2 * FACTOR


def test_a_child_says_how_long_it_took_or_which_limit_has_ended_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[ChildQuestion] = []
    answers = iter([Judgement(Verdict.PASSES), *[Judgement(Verdict.TIMEOUT, HANG)] * 2])
    executor = ChildProcess(60.0)
    monkeypatch.setattr(executor, "_ask_workers", lambda each: asked.append(each) or next(answers))
    questions = [Question(case_for("right"), deadline_seconds=each) for each in (None, 2.0, None)]
    seconds = [executor.ask(question).seconds for question in questions]
    assert seconds[0] is not None and seconds[0] < 2.0
    assert seconds[1:] == [2.0, 60.0]
    assert [each.timeout_seconds for each in asked] == [60.0, 2.0, 60.0]
    assert [each.busy_seconds for each in asked] == [0.0, 58.0, 0.0]


@pytest.mark.parametrize(("given", "limit"), [(None, 60.0), (7.0, 7.0)])
def test_a_case_that_records_a_hang_has_a_limit(given: float | None, limit: float) -> None:
    case = replace(case_for("right"), signature=HANG)
    executor = executor_for([case], timeout_seconds=given)
    assert isinstance(executor, ChildProcess)
    assert executor.limit_seconds == limit


BUSY_LOOP = "\nwhile True: pass\n"
SECONDS_OF_WORK = 0.6
WORK = f"""
import time
while time.process_time() < {SECONDS_OF_WORK}: pass
"""


@pytest.fixture
def one_core() -> Iterator[int]:
    """Let this test and all that it starts share one core."""
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, before)


@pytest.mark.usefixtures("one_core")
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say")
def test_time_without_a_core_is_told_from_time_asleep() -> None:
    others = [subprocess.Popen([sys.executable, "-SEc", BUSY_LOOP]) for _ in range(3)]
    with subprocess.Popen([sys.executable, "-SEc", WORK]) as worker:
        started, waits, waited = time.monotonic(), CoreWaits(), 0.0
        while worker.poll() is None:
            waited += waits.since([worker.pid])
            time.sleep(0.05)
        took = time.monotonic() - started
    for other in others:
        other.kill()
        other.wait()
    assert (
        took - waited < 2 * SECONDS_OF_WORK + 0.3
    )  # with three neighbours it took four times that
    assert waited > SECONDS_OF_WORK
    sleeps = [sys.executable, "-SEc", "import time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(sleeps, stdout=subprocess.PIPE) as sleeper:
        assert sleeper.stdout is not None
        sleeper.stdout.readline()  # its start may wait for a core
        waits = CoreWaits()
        waits.since([sleeper.pid])
        time.sleep(0.3)
        assert waits.since([sleeper.pid]) < 0.1
        sleeper.kill()
