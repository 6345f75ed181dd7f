"""The driver: what it refuses, when it stops, what it never loses."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from ctk.compiler.errors import DoesNotReproduce
from ctk.toolkit.oracle.cache import fingerprint
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Budget, Problem
from ctk.toolkit.reduce.size import is_smaller
from ctk.toolkit.reduce.steps import STEPS, drop_suffix
from tests.helpers.reduce_graphs import FAILURE, FakeOracle, chain, feeds, has_ops, op_names

RELU_GELU = {11: torch.relu, 12: F.gelu}


def problem(oracle=None, **options) -> Problem:
    return Problem(chain(24, RELU_GELU), oracle or FakeOracle(feeds("relu", "gelu")), **options)


@pytest.mark.parametrize(
    "verdict", [v for v in Verdict if v is not Verdict.REPRODUCES], ids=lambda v: v.value
)
def test_a_case_that_does_not_reproduce_is_refused_with_what_was_seen(verdict: Verdict):
    asked = []

    def oracle(case):
        asked.append(case)
        return Judgement(verdict, FAILURE, "because")

    with pytest.raises(DoesNotReproduce, match=rf"{verdict.value} .*out0.*because(.|\n)*ctk repro"):
        minimize(problem(oracle))
    assert len(asked) == 1


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.REPRODUCES])
def test_nothing_but_reproduces_is_accepted(verdict: Verdict):
    start = chain(6, {3: torch.relu})

    def oracle(case):
        return Judgement(Verdict.REPRODUCES if case is start else verdict, FAILURE)

    result = minimize(Problem(start, oracle))
    assert result.best is start
    assert result.finished and result.nodes_after == result.nodes_before == 6


def test_a_result_says_what_was_done():
    result = minimize(problem())
    assert (result.finished, result.reason) == (True, "minimal")
    assert (result.nodes_before, result.nodes_after) == (24, 2)
    assert op_names(result.best) == ["relu", "gelu"]
    counts = result.statistics.values()
    assert sum(each.questions for each in counts) == result.questions
    assert sum(each.cached for each in counts) == result.cached
    assert all(each.useful <= each.questions for each in counts)
    assert result.statistics["drop_suffix"].useful > 0


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8])
def test_a_budget_of_questions_keeps_the_best_so_far(limit: int):
    oracle = FakeOracle(feeds("relu", "gelu"))
    result = minimize(problem(oracle, budget=Budget(questions=limit)))
    assert (result.finished, result.reason) == (False, "questions")
    assert len(oracle.asked) == result.questions == limit
    assert oracle.predicate(result.best)


def test_a_budget_of_seconds_keeps_the_best_so_far():
    result = minimize(problem(budget=Budget(seconds=0.0)))
    assert (result.finished, result.reason, result.questions) == (False, "seconds", 0)
    assert result.nodes_after == 24


@pytest.mark.parametrize("after", range(12))
def test_ctrl_c_at_any_question_loses_nothing(after: int):
    fake = FakeOracle(feeds("relu", "gelu"))
    saved = []

    def oracle(case):
        if len(fake.asked) == after:
            raise KeyboardInterrupt
        return fake(case)

    result = minimize(problem(oracle, on_improvement=saved.append))
    assert (result.finished, result.reason) == (False, "interrupted")
    assert fake.predicate(result.best)
    assert not saved or result.best is saved[-1]
    resumed = minimize(Problem(result.best, FakeOracle(fake.predicate)))
    assert op_names(resumed.best) == ["relu", "gelu"]


def test_improvements_are_handed_over_one_by_one_each_smaller_than_the_last():
    saved = []
    start = problem(on_improvement=saved.append)
    first = start.best
    result = minimize(start)
    steps = [first, *saved]
    assert len(saved) > 3 and result.best is saved[-1]
    assert all(is_smaller(b, a) for a, b in itertools.pairwise(steps))


def test_progress_is_told_after_every_answer():
    seen = []
    result = minimize(problem(on_progress=seen.append, budget=Budget(questions=100)))
    assert [each.questions for each in seen] == list(range(1, result.questions + 1))
    assert seen[0].step == "start" and seen[0].call_nodes == seen[0].call_nodes_before == 24
    assert min(each.call_nodes for each in seen) == 2
    assert {each.step for each in seen} <= {"start", *(step.name for step in STEPS)}


def test_an_empty_graph_is_never_asked_about():
    oracle = FakeOracle(lambda case: True)
    result = minimize(Problem(chain(2, {}), oracle))
    assert result.nodes_after == 1 and result.finished


def test_an_error_of_the_oracle_is_not_swallowed():
    def oracle(case):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        minimize(problem(oracle))


def test_steps_are_data_and_can_be_chosen():
    result = minimize(problem(), steps=(drop_suffix.STEP,))
    assert op_names(result.best)[-2:] == ["relu", "gelu"] and result.nodes_after == 13


def test_the_same_problem_gives_the_same_answer_and_asks_the_same_questions():
    runs = [FakeOracle(has_ops("relu", "gelu")) for _ in range(2)]
    results = [minimize(Problem(chain(24, {3: torch.relu, 20: F.gelu}), run)) for run in runs]
    assert fingerprint(results[0].best) == fingerprint(results[1].best)
    first, second = ([fingerprint(case) for case in run.asked] for run in runs)
    assert first == second
