"""Asking ahead: what is told is what is asked next, and the search does not depend on it."""

from collections.abc import Sequence

import pytest
import torch

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.oracle.question import NotKnown, Question
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from tests.helpers.reduce_families import FAMILIES
from tests.helpers.reduce_graphs import FakeOracle, chain, has_ops


class Told:
    """An oracle that notes what it was told, and how often that was what came next."""

    def __init__(self, fails, jobs: int) -> None:
        self.jobs, self.oracle = jobs, FakeOracle(fails)
        self.told: list[str] = []
        self.ahead: list[str] = []
        self.asked: list[str] = []
        self.foreseen = 0

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        if known_only:
            raise NotKnown
        case = question.case
        key = fingerprint(case)
        self.foreseen += key in self.ahead
        self.ahead = self.told[1:]
        self.asked.append(key)
        return self.oracle(case)

    def anticipate(self, questions: Sequence[Question]) -> None:
        now = [fingerprint(question.case) for question in questions]
        assert len(now) <= self.jobs
        assert len(set(now)) == len(now)
        assert not set(now) & set(self.asked)
        self.told = now


@pytest.mark.parametrize("jobs", [2, 4])
@pytest.mark.parametrize("name", ["chain", "equal_ops"])
def test_any_number_of_jobs_asks_the_same_in_the_same_order(name: str, jobs: int):
    if name == "chain":
        case, fails = chain(60, {20: torch.relu}), has_ops("relu")
    else:
        planted = FAMILIES[name].build(40, 1)
        case = Case(planted.graph, planted.inputs, target="fake")
        fails = lambda c: planted.fails(c.graph, c.inputs)  # noqa: E731  one of two predicates
    one, several = Told(fails, 1), Told(fails, jobs)
    first, second = minimize(Problem(case, one)), minimize(Problem(case, several))
    assert several.asked == one.asked
    assert fingerprint(first.best) == fingerprint(second.best)
    assert [r.edit for r in first.certificate] == [r.edit for r in second.certificate]
    assert several.foreseen >= len(several.asked) // 4
    assert not first.problems + second.problems
