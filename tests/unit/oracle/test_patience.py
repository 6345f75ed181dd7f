"""How long a candidate may take: counted in limits given, never in seconds measured."""

import pytest

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.executors import executor_for
from ctk.toolkit.oracle.executors.child import ChildProcess
from ctk.toolkit.oracle.executors.patience import (
    FACTOR,
    FLOOR_SECONDS,
    UNLIMITED_FLOOR_SECONDS,
    Patience,
)
from ctk.toolkit.oracle.protocol import Question
from tests.unit.oracle.test_executors import case_for

CRASH = Signature("signal", signal=11)
HANG = Signature("timeout")


class Scripted(ChildProcess):
    """Hangs for the questions whose number is in `hanging`; counts the seconds waited for them."""

    def __init__(self, timeout_seconds: float | None, hanging: set[int]) -> None:
        super().__init__(timeout_seconds)
        self.hanging, self.asked, self.waited = hanging, 0, 0.0

    def _answer(self, question: Question) -> Judgement:
        number, self.asked = self.asked, self.asked + 1
        if number not in self.hanging:
            return Judgement(Verdict.PASSES)
        assert question.timeout_seconds is not None
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


def test_seventeen_questions_with_hanging_candidates_take_seconds() -> None:
    executor = Scripted(60.0, hanging=set(range(3, 17, 2)))
    case = case_for("right")
    executor.ask(case, CRASH)
    for _ in range(16):
        executor.ask(case, CRASH, is_candidate=True)
    assert executor.asked == 17  # a "no" is believed: nothing is asked twice
    assert executor.waited == 7 * FLOOR_SECONDS  # 7 minutes, if each had the whole limit


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
    assert not executor.patience.is_proved


@pytest.mark.parametrize(("given", "limit"), [(None, 60.0), (7.0, 7.0)])
def test_a_case_that_records_a_hang_has_a_limit(given: float | None, limit: float) -> None:
    import dataclasses

    case = dataclasses.replace(case_for("right"), signature=HANG)
    executor = executor_for([case], timeout_seconds=given)
    assert isinstance(executor, ChildProcess)
    assert executor.patience.limit_seconds == limit
