"""How often an oracle is asked that answers by chance, and what is promised."""

import random
from collections.abc import Iterable

import pytest

from ctk.compiler.errors import DoesNotReproduce
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.repeated import (
    ASKED_FIRST,
    ASKED_FLAKY,
    ERROR,
    FailureRate,
    Repeated,
    check_workable,
    rate_of,
    runs_needed,
)
from tests.helpers.case_folders import linear_case

PASSES = Judgement(Verdict.PASSES)
FAILS = Judgement(Verdict.REPRODUCES)
EXACT = Judgement(Verdict.REPRODUCES, Signature("accuracy", message="max abs 2"))
OTHER_DIGITS = Judgement(Verdict.REPRODUCES, Signature("accuracy", message="max abs 3"))
DIFFERENT = Judgement(Verdict.DIFFERENT, Signature("nan"))


def rate(answers: Iterable[Judgement]) -> FailureRate:
    left = iter(answers)
    return rate_of((), lambda: next(left))


def test_two_answers_equal_to_the_last_digit_are_enough() -> None:
    assert rate([EXACT, EXACT]) == FailureRate(2, 2)


@pytest.mark.parametrize("answers", [[FAILS] * 3, [EXACT, OTHER_DIGITS, OTHER_DIGITS]])
def test_where_chance_would_not_show_three_are_asked(answers: list[Judgement]) -> None:
    assert rate(answers) == FailureRate(ASKED_FIRST, 3)


def test_two_that_differ_lead_to_more() -> None:
    assert rate([FAILS, PASSES] * 10) == FailureRate(ASKED_FLAKY, 10)
    assert rate([FAILS, FAILS, PASSES, *[FAILS] * 17]) == FailureRate(ASKED_FLAKY, 19)


def test_answers_that_are_known_are_not_asked_for() -> None:
    assert rate_of([EXACT, EXACT], pytest.fail) == FailureRate(2, 2)


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_the_promised_error_holds_for_all_questions_together(p: float) -> None:
    wrong = sum((1 - p) ** runs_needed(p, number) for number in range(1, 2000))
    assert wrong <= ERROR


def test_more_runs_for_a_rarer_failure_and_one_for_a_steady_one() -> None:
    assert [runs_needed(p, 1) for p in (1.0, 0.5, 0.1)] == [1, 8, 51]


def test_too_rare_a_failure_is_refused() -> None:
    check_workable(FailureRate(20, 2), "graph0")
    with pytest.raises(DoesNotReproduce, match="graph0 is flaky: it fails in 1 of 20 runs only"):
        check_workable(FailureRate(20, 1), "graph0")


def test_a_run_that_fails_is_believed_at_once() -> None:
    asked: list[object] = []
    repeated = Repeated(lambda case, _: asked.append(case) or FAILS, FailureRate(20, 10))
    assert repeated(linear_case()) is FAILS
    assert len(asked) == 1


def test_another_failure_among_passing_runs_is_told() -> None:
    answers = iter([PASSES, DIFFERENT, *[PASSES] * 100])
    repeated = Repeated(lambda case, _: next(answers), FailureRate(20, 10))
    assert repeated(linear_case()) is DIFFERENT


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.TIMEOUT])
def test_what_cannot_be_asked_is_asked_once(verdict: Verdict) -> None:
    asked: list[object] = []
    repeated = Repeated(
        lambda case, _: asked.append(case) or Judgement(verdict), FailureRate(20, 10)
    )
    assert repeated.counted(linear_case()).verdict is verdict
    assert (len(asked), repeated.error) == (1, 0)


def test_what_is_said_of_the_errors_is_what_was_risked() -> None:
    repeated = Repeated(lambda case, _: PASSES, FailureRate(20, 10))
    for _ in range(5):
        repeated.counted(linear_case())
    repeated.once = lambda case, _: FAILS
    repeated.counted(linear_case())  # a failing one risks nothing
    said = repeated.flakiness
    assert said.error_probability == pytest.approx(
        sum(0.5 ** runs_needed(0.5, number) for number in range(1, 6)), abs=1e-6
    )
    assert said.most_runs == runs_needed(0.5, 6)
    assert "10 of 20 runs" in str(said)


def test_a_failing_candidate_is_hardly_ever_lost() -> None:
    coin = random.Random(3)
    repeated = Repeated(
        lambda case, _: FAILS if coin.random() < 0.4 else PASSES, FailureRate(20, 8)
    )
    case = linear_case()
    lost = sum(repeated.counted(case).verdict is Verdict.PASSES for _ in range(2000))
    assert lost == 0  # expected: one in 100 such tests
