"""How long a candidate may take: counted in limits given, never in seconds measured."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.executors import executor_for
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.patience import (
    COMMON_NODES,
    DOUBT,
    DOUBTED,
    FACTOR,
    FLOOR_SECONDS,
    UNLIMITED_FLOOR_SECONDS,
    Patience,
)
from ctk.toolkit.oracle.protocol import Question
from ctk.toolkit.processes.waits import Waits
from tests.unit.oracle.test_executors import case_for

CRASH = Signature("signal", signal=11)
HANG = Signature("timeout")


class Scripted(ChildProcess):
    """Hangs for the questions whose number is in `hanging`; counts the seconds waited for them.

    Args:
        needs: What a question that hangs would need, had it the time.
    """

    def __init__(
        self, timeout_seconds: float | None, hanging: set[int], needs: float = float("inf")
    ) -> None:
        super().__init__(timeout_seconds)
        self.hanging, self.needs = hanging, needs
        self.asked, self.waited = 0, 0.0

    def _asked(self, question: Question) -> Judgement:
        number, self.asked = self.asked, self.asked + 1
        if number not in self.hanging:
            return Judgement(Verdict.PASSES)
        assert question.timeout_seconds is not None
        if self.needs <= question.timeout_seconds:
            self.waited += self.needs
            return Judgement(Verdict.REPRODUCES)
        self.waited += question.timeout_seconds
        wanted = question.expected is not None and question.expected.kind == "timeout"
        return Judgement(Verdict.REPRODUCES if wanted else Verdict.TIMEOUT, HANG)


def test_the_limits() -> None:
    patience = Patience(60.0)
    assert patience.seconds(is_candidate=True) == 60.0  # nothing is known yet
    patience.note(0.1)
    assert patience.seconds(is_candidate=True) == FLOOR_SECONDS
    assert patience.seconds(is_candidate=False) == 60.0
    patience.note(2.0)
    patience.note(1.0)
    assert patience.seconds(is_candidate=True) == 2.0 * FACTOR
    patience.note(30.0)
    assert patience.seconds(is_candidate=True) == 60.0  # never above the user's


def test_without_a_limit_candidates_have_one_all_the_same() -> None:
    patience = Patience(None)
    assert patience.seconds(is_candidate=True) is None
    patience.note(0.1)
    assert patience.seconds(is_candidate=True) == UNLIMITED_FLOOR_SECONDS
    assert patience.seconds(is_candidate=False) is None


def test_a_small_graph_has_less_time_than_the_large_one_before_it() -> None:
    patience = Patience(600.0)
    patience.note(8.0, 16 * COMMON_NODES - COMMON_NODES)
    assert patience.seconds(is_candidate=True, nodes=COMMON_NODES) == FACTOR * 8.0 * 2 / 16
    assert patience.seconds(is_candidate=True, nodes=5000) == FACTOR * 8.0


def test_old_answers_are_forgotten() -> None:
    patience = Patience(600.0)
    patience.note(30.0)
    for _ in range(32):
        patience.note(0.5)
    assert patience.seconds(is_candidate=True) == FACTOR * 0.5


def test_a_limit_that_proves_too_short_makes_all_longer() -> None:
    patience = Patience(600.0)
    patience.note(1.0)
    for _ in range(DOUBTED):
        assert patience.doubted(10.0) == DOUBT * 10.0
        patience.was_right()
    assert patience.doubted(10.0) is None
    patience.was_short()
    assert patience.seconds(is_candidate=True) == 2 * FACTOR
    assert patience.doubted(20.0) == DOUBT * 20.0
    assert patience.doubted(600.0) is None  # there is no more than that


def test_seventeen_questions_with_hanging_candidates_take_seconds() -> None:
    executor = Scripted(60.0, hanging={*range(3, 7), *range(8, 20, 2)})
    case = case_for("right")
    executor.ask(case, CRASH)
    for _ in range(16):
        executor.ask(case, CRASH, is_candidate=True)
    assert executor.asked == 17 + DOUBTED  # the first limits are doubted, then a "no" is believed
    assert executor.waited == (8 + DOUBTED * DOUBT) * FLOOR_SECONDS  # 8 minutes at 60 seconds each


def test_a_slow_candidate_is_asked_again_and_changes_the_limits() -> None:
    executor = Scripted(60.0, hanging={1, 2}, needs=3 * FLOOR_SECONDS)
    executor.ask(case_for("right"), CRASH)
    answer = executor.ask(case_for("right"), CRASH, is_candidate=True)
    assert answer.verdict is Verdict.REPRODUCES
    assert executor.patience.factor == 2 * FACTOR
    assert executor.patience.proved == 0


def test_a_hang_that_is_looked_for_is_believed_once_the_whole_limit_has_run_out() -> None:
    executor = Scripted(60.0, hanging={1, 2, 3, 4})
    case = case_for("right")
    executor.ask(case, HANG)
    for _ in range(3):
        assert executor.ask(case, HANG, is_candidate=True).verdict is Verdict.REPRODUCES
    assert executor.waited == FLOOR_SECONDS + 60.0 + 2 * FLOOR_SECONDS


def test_a_slow_candidate_is_no_hang() -> None:
    executor = Scripted(60.0, hanging={1})  # it answers when it has the whole limit
    executor.ask(case_for("right"), HANG)
    assert executor.ask(case_for("right"), HANG, is_candidate=True).verdict is Verdict.PASSES
    assert not executor.patience.is_hang_proved


@pytest.mark.parametrize(("given", "limit"), [(None, 60.0), (7.0, 7.0)])
def test_a_case_that_records_a_hang_has_a_limit(given: float | None, limit: float) -> None:
    case = replace(case_for("right"), signature=HANG)
    executor = executor_for([case], timeout_seconds=given)
    assert isinstance(executor, ChildProcess)
    assert executor.patience.limit_seconds == limit


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
        started, waits, waited = time.monotonic(), Waits(), 0.0
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
    with subprocess.Popen([sys.executable, "-SEc", "import time; time.sleep(60)"]) as sleeper:
        waits = Waits()
        waits.since([sleeper.pid])
        time.sleep(0.3)
        assert waits.since([sleeper.pid]) < 0.1
        sleeper.kill()
