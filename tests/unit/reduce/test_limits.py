"""Candidates that take long: what a short limit has ended decides nothing. No second is waited."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.oracle.deadlines import FLOOR_SECONDS, Deadlines, TimeLimits
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import NotKnown, Oracle, Question
from ctk.toolkit.oracle.speculation import Lane, Speculative
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.reduce_graphs import chain, has_ops, op_names

LIMIT = 60.0
HANGS = float("inf")
FAILURE, HANG = Signature("accuracy"), Signature("timeout")
RELU_GELU = {3: torch.relu, 8: F.gelu}


@dataclass
class Clocked:
    """An oracle that knows what each answer takes, and waits for none.

    Attributes:
        fails: Whether a case fails, if it is let finish.
        takes: How many seconds that takes.
        wants_hang: Whether a run without end is what is looked for.
        asked: Fingerprint and limit of each question.
    """

    fails: Callable[[Case], bool]
    takes: Callable[[Case], float]
    wants_hang: bool = False
    asked: list[tuple[str, float | None]] = field(default_factory=list[tuple[str, float | None]])

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        if known_only:
            raise NotKnown
        case, within = question.case, question.deadline_seconds
        self.asked.append((fingerprint(case), within))
        seconds, limit = self.takes(case), LIMIT if within is None else within
        if seconds > limit:
            verdict = Verdict.REPRODUCES if self.wants_hang else Verdict.TIMEOUT
            return Judgement(verdict, HANG, seconds=limit)
        if self.fails(case):
            return Judgement(Verdict.REPRODUCES, FAILURE, seconds=seconds)
        return Judgement(Verdict.PASSES, seconds=seconds)


def reduced(given: Case, oracle: Oracle) -> Reduction:
    return minimize(Problem(given, Deadlines(oracle, TimeLimits(LIMIT))))


def few(case: Case) -> bool:
    return len(op_names(case)) <= 6


def test_a_slow_candidate_that_fails_is_reached_although_limits_are_believed() -> None:
    def takes(case: Case) -> float:
        if "gelu" not in op_names(case):
            return 4 * FLOOR_SECONDS if few(case) else HANGS  # the first prove the limits right
        return 0.1

    found = reduced(chain(12, RELU_GELU), Clocked(has_ops("relu"), takes))
    assert (op_names(found.best), found.finished) == (["relu"], True)


def test_what_nobody_could_decide_is_not_called_minimal() -> None:
    oracle = Clocked(has_ops("relu"), lambda case: HANGS if "gelu" not in op_names(case) else 0.1)
    found = reduced(chain(12, RELU_GELU), oracle)
    assert op_names(found.best) == ["relu", "gelu"]
    assert not found.finished
    assert "remove: not decided: 1 timeout" in found.unfinished
    whole = [key for key, within in oracle.asked if within == LIMIT]
    assert 1 < len(whole) == len(set(whole))  # once each


def test_without_a_candidate_that_hangs_nothing_is_asked_twice() -> None:
    oracle = Clocked(has_ops("relu"), lambda case: 0.1)
    found = reduced(chain(12, RELU_GELU), oracle)
    assert found.finished
    assert len({key for key, _ in oracle.asked}) == len(oracle.asked)


def test_a_slow_candidate_is_no_hang_where_one_is_looked_for() -> None:
    def takes(case: Case) -> float:
        ops = op_names(case)
        return HANGS if "gelu" in ops else 4 * FLOOR_SECONDS if "relu" in ops else 0.1

    oracle = Clocked(lambda case: False, takes, wants_hang=True)
    found = reduced(chain(12, RELU_GELU), oracle)
    assert (op_names(found.best), found.finished) == (["gelu"], True)
    assert (fingerprint(found.best), LIMIT) in oracle.asked


@pytest.mark.parametrize("jobs", [2, 4])
def test_hangs_that_are_asked_about_ahead_change_no_answer(jobs: int) -> None:
    def takes(case: Case) -> float:
        ops = op_names(case)
        if "relu" not in ops or "gelu" not in ops:
            return HANGS if len(ops) % 2 else 4 * FLOOR_SECONDS
        return 0.1

    given, told = chain(20, RELU_GELU), []
    for asked_at_once in (1, jobs):
        oracle = Clocked(has_ops("relu"), takes)
        lanes = [Lane(oracle, InProcess()) for _ in range(asked_at_once)]
        with Speculative(lanes) as ahead:
            found = reduced(given, ahead)
        refusals = [(each.edit, each.verdict) for each in found.certificate]
        told.append((fingerprint(found.best), found.unfinished, refusals, found.questions))
    assert told[0] == told[1]
