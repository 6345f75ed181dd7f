"""How often an oracle is asked that answers by chance, and what is promised."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from ctk.compiler.errors import DoesNotReproduce
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle import repeated_runs
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.repeated_runs import (
    ASKED_FIRST,
    ASKED_FLAKY,
    ASKED_QUICK,
    ERROR,
    FailureRate,
    RepeatedRuns,
    check_workable,
    rate_of,
    runs_needed,
)
from tests.helpers.case_folders import linear_case

PASSES = Judgement(Verdict.PASSES)
FAILS = Judgement(Verdict.REPRODUCES)
RACE = Judgement(Verdict.REPRODUCES, Signature("runtime-error", "RuntimeError", message="lost"))
EXACT = Judgement(Verdict.REPRODUCES, Signature("accuracy", message="max abs 2"))
OTHER_DIGITS = Judgement(Verdict.REPRODUCES, Signature("accuracy", message="max abs 3"))
DIFFERENT = Judgement(Verdict.DIFFERENT, Signature("nan"))


def rate(answers: Iterable[Judgement]) -> FailureRate:
    left = iter(answers)
    return rate_of((), lambda number: next(left))


@dataclass
class Runs:
    """Answers by the number of the run."""

    judge: Callable[[int], Judgement]

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        return self.judge(question.run)


def counted(repeated: RepeatedRuns) -> Judgement:
    """Ask, and count the answer, as a search does."""
    judgement = repeated.ask(Question(linear_case()))
    repeated.count(judgement)
    return judgement


def test_two_answers_equal_to_the_last_digit_are_enough() -> None:
    assert rate([EXACT, EXACT]) == FailureRate(2, 2)


@pytest.mark.parametrize("answers", [[FAILS] * 9, [EXACT, *[OTHER_DIGITS] * 8]])
def test_where_chance_would_not_show_more_are_asked(
    answers: list[Judgement], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeated_runs, "QUICK_SECONDS", 0)
    assert rate(answers) == FailureRate(ASKED_FIRST, ASKED_FIRST)


def test_an_exception_that_comes_and_goes_is_called_steady_by_chance_alone() -> None:
    """Its words are the same each time it comes: two of them say nothing."""
    coin = random.Random(5)

    def ask(_: int = 0) -> Judgement:
        return RACE if coin.random() < 0.5 else PASSES

    steady = sum(rate_of([RACE], ask).is_steady for _ in range(1000))
    assert steady <= 1000 * 0.5 ** (ASKED_QUICK - 1) * 1.5


def test_a_slow_question_is_asked_as_often_as_is_said_and_a_limit_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repeated_runs, "QUICK_SECONDS", 0)
    assert rate([RACE] * 9) == FailureRate(ASKED_FIRST, ASKED_FIRST)
    hangs = Judgement(Verdict.REPRODUCES, Signature("timeout"))
    assert rate([hangs, hangs]) == FailureRate(2, 2)


def test_two_that_differ_lead_to_more() -> None:
    assert rate([FAILS, PASSES] * 10) == FailureRate(ASKED_FLAKY, 10)
    assert rate([FAILS, FAILS, PASSES, *[FAILS] * 17]) == FailureRate(ASKED_FLAKY, 19)


def test_answers_that_are_known_are_not_asked_for() -> None:
    assert rate_of([EXACT, EXACT], lambda run: pytest.fail(f"run {run}")) == FailureRate(2, 2)


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
    repeated = RepeatedRuns(Runs(lambda run: asked.append(run) or FAILS), FailureRate(20, 10))
    assert repeated.ask(Question(linear_case())) is FAILS
    assert asked == [1]


def test_another_failure_among_passing_runs_is_told() -> None:
    answers = iter([PASSES, DIFFERENT, *[PASSES] * 100])
    repeated = RepeatedRuns(Runs(lambda run: next(answers)), FailureRate(20, 10))
    assert repeated.ask(Question(linear_case())) is DIFFERENT


@pytest.mark.parametrize("verdict", [Verdict.INVALID, Verdict.TIMEOUT])
def test_what_cannot_be_asked_is_asked_once(verdict: Verdict) -> None:
    asked: list[object] = []
    answer = Judgement(verdict)
    repeated = RepeatedRuns(Runs(lambda run: asked.append(run) or answer), FailureRate(20, 10))
    assert counted(repeated).verdict is verdict
    assert (len(asked), repeated.error) == (1, 0)


def test_what_is_said_of_the_errors_is_what_was_risked() -> None:
    repeated = RepeatedRuns(Runs(lambda run: PASSES), FailureRate(20, 10))
    for _ in range(5):
        counted(repeated)
    repeated.inner = Runs(lambda run: FAILS)
    counted(repeated)  # a failing one risks nothing
    said = repeated.flakiness
    assert said.error_probability == pytest.approx(
        sum(0.5 ** runs_needed(0.5, number) for number in range(1, 6)), abs=1e-6
    )
    assert said.most_runs == runs_needed(0.5, 6)
    assert "10 of 20 runs" in str(said)


def test_a_failing_candidate_is_hardly_ever_lost() -> None:
    coin = random.Random(3)
    rate = FailureRate(20, 8)
    repeated = RepeatedRuns(Runs(lambda run: FAILS if coin.random() < 0.4 else PASSES), rate)
    lost = sum(counted(repeated).verdict is Verdict.PASSES for _ in range(2000))
    assert lost == 0  # expected: one in 100 such tests
