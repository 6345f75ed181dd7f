"""The driver: what it refuses, when it stops, what it never loses."""

import dataclasses
import itertools
import logging
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from ctk.compiler.errors import ConfigError, DoesNotReproduce
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.execution.private_copy import held_tensors
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.oracle.question import NotKnown, Question
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.progress import Budget, budget_of
from ctk.toolkit.reduce.proposal import GaveUp, Step, ladder_of_edits
from ctk.toolkit.reduce.size import is_smaller
from ctk.toolkit.reduce.steps import STEPS, drop_prefix, drop_suffix
from tests.helpers.reduce_graphs import (
    FAILURE,
    FakeOracle,
    captured,
    chain,
    feeds,
    has_ops,
    op_names,
)

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
    assert result.nodes_after == result.nodes_before == 6
    is_answer = verdict not in (Verdict.TIMEOUT, Verdict.FLAKY)
    assert result.finished is is_answer
    assert all(": not decided: " in each for each in result.unfinished)
    assert bool(result.unfinished) is not is_answer


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


def test_a_graph_that_only_sets_a_mode_is_empty_too():
    def switching(x):
        with torch.no_grad():
            return x + 1

    result = minimize(Problem(captured(switching, torch.ones(2)), FakeOracle(lambda case: True)))
    assert op_names(result.best) == ["add"]


def test_an_error_of_the_oracle_at_the_first_question_is_not_swallowed():
    def oracle(case):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        minimize(problem(oracle))


class Stumbling:
    """Proposes like another step, until it raises: at once, or when its edit is applied."""

    def __init__(self, at: str) -> None:
        self.at = at

    def apply(self, case, facts):
        raise ZeroDivisionError("in edit")

    def propose(self, case, facts):
        if self.at == "propose":
            raise ZeroDivisionError("in propose")
        return [ladder_of_edits(self)]


@pytest.mark.parametrize("at", ["propose", "edit"])
@pytest.mark.parametrize("place", [0, 4, len(STEPS)])
def test_a_step_that_raises_is_left_out_and_named(at: str, place: int, caplog):
    bad = Step("bad_idea", Stumbling(at).propose)
    result = minimize(problem(), (*STEPS[:place], bad, *STEPS[place:]))
    assert op_names(result.best) == ["relu", "gelu"]
    assert (result.finished, result.reason) == (False, "incomplete")
    (said,) = result.problems
    assert said == f"step bad_idea raised ZeroDivisionError: in {at}, and was left out"
    assert caplog.text.count("step bad_idea raised") == 1
    assert "Traceback" not in caplog.text
    assert isinstance(result.errors[0], ZeroDivisionError)


def test_the_traceback_of_a_step_that_raised_is_logged_where_ctk_logs_all(caplog):
    bad = Step("bad_idea", Stumbling("propose").propose)
    with caplog.at_level(logging.DEBUG, logger="ctk"):
        minimize(problem(), (*STEPS, bad))
    assert "step bad_idea raised" in caplog.text
    assert "Traceback" in caplog.text and "in propose" in caplog.text.partition("Traceback")[2]


@pytest.mark.parametrize("after", [1, 2, 5, 9])
def test_an_oracle_that_breaks_down_ends_the_search_with_the_best_so_far(after: int):
    fake, saved = FakeOracle(feeds("relu", "gelu")), []

    def oracle(case):
        if len(fake.asked) == after:
            raise RuntimeError("the worker is lost")
        return fake(case)

    result = minimize(problem(oracle, on_improvement=saved.append))
    assert (result.finished, result.reason) == (False, "error")
    assert result.problems == ("the oracle raised RuntimeError: the worker is lost",)
    assert fake.predicate(result.best)
    assert not saved or result.best is saved[-1]


@pytest.mark.parametrize("name", ["on_progress", "on_improvement"])
def test_a_callback_that_raises_ends_the_search_with_the_best_so_far(name: str):
    seen = []

    def stumble(what):
        seen.append(what)
        if len(seen) == 3:
            raise ValueError("not now")

    result = minimize(problem(**{name: stumble}))
    assert (result.reason, len(seen)) == ("error", 3)
    assert result.problems == (f"{name} raised ValueError: not now",)
    if name == "on_improvement":
        assert result.best is seen[-1]
    else:
        assert result.nodes_after == seen[-1].call_nodes


@dataclasses.dataclass
class Remembering:
    """An oracle whose answers about some cases are known."""

    known: dict[str, Judgement]
    judge: Callable[[Case], Judgement]

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        if not known_only:
            return self.judge(question.case)
        key = fingerprint(question.case)
        if key not in self.known:
            raise NotKnown
        return self.known[key]


def test_what_is_remembered_costs_no_budget_and_gives_the_same_result():
    known, first = {}, FakeOracle(feeds("relu", "gelu"))

    def oracle(case):
        known[fingerprint(case)] = first(case)
        return known[fingerprint(case)]

    whole = minimize(problem(oracle))
    for kept in range(len(known) + 1):
        some = dict(list(known.items())[:kept])
        rest = FakeOracle(feeds("relu", "gelu"))
        start = problem(rest, budget=Budget(questions=len(known) - kept))
        start.answers.oracle = Remembering(some, rest)
        result = minimize(start)
        assert (result.questions, result.remembered) == (len(known) - kept, kept)
        assert fingerprint(result.best) == fingerprint(whole.best)
        assert result.finished and len(rest.asked) == result.questions


@pytest.mark.parametrize(
    ("questions", "seconds"),
    [("many", None), (-1, None), (0, None), (2.5, None), (True, None), (None, 0), (None, "1"),
     (None, float("nan"))],
)  # fmt: skip
def test_a_budget_that_is_none_is_refused(questions: object, seconds: object):
    with pytest.raises(ConfigError, match=r"max_(questions|seconds) is "):
        budget_of(questions, seconds)


def test_steps_are_data_and_can_be_chosen():
    result = minimize(problem(), steps=(drop_suffix.STEP,))
    assert op_names(result.best)[-2:] == ["relu", "gelu"] and result.nodes_after == 13


def test_the_same_problem_gives_the_same_answer_and_asks_the_same_questions():
    runs = [FakeOracle(has_ops("relu", "gelu")) for _ in range(2)]
    results = [minimize(Problem(chain(24, {3: torch.relu, 20: F.gelu}), run)) for run in runs]
    assert fingerprint(results[0].best) == fingerprint(results[1].best)
    first, second = ([fingerprint(case) for case in run.asked] for run in runs)
    assert first == second


def test_a_step_that_gives_up_is_not_finished_and_says_why():
    def propose(case, facts):
        return [*drop_suffix.STEP.propose(case, facts), GaveUp("too large\nfor me")]

    oracle = FakeOracle(has_ops("relu", "gelu"))
    result = minimize(problem(oracle), steps=(drop_suffix.STEP, Step("lazy", propose)))
    assert (result.finished, result.reason) == (False, "minimal")
    assert result.unfinished == ("lazy: too large",)
    assert result.nodes_after == 13  # what it does propose is tried


class Forgetting:
    """Drops the symbolic sizes of an input that is gone: smaller, and nobody can see it."""

    def says(self) -> str:
        return "no sizes of gone"

    def apply(self, case, facts):
        return dataclasses.replace(case, dynamic={}) if case.dynamic else None


def test_a_smaller_case_that_is_the_same_question_is_an_error_of_its_step():
    start = problem()
    start.best = dataclasses.replace(start.best, dynamic={"gone": ("s0",)})
    found = minimize(start, (Step("forgets", lambda case, facts: [ladder_of_edits(Forgetting())]),))
    assert found.reason == "incomplete" and found.best.dynamic
    (said,) = found.problems
    assert said.startswith("step forgets raised SameQuestion: its edit 'no sizes of gone' makes a")
    assert "oracle/answers/fingerprint.py" in said


@pytest.mark.parametrize("is_constant", [False, True])
def test_what_needs_its_place_in_memory_keeps_it(is_constant: bool):
    unaligned = torch.arange(1.0, 9.0)[1:]

    class Program(torch.nn.Module):
        held = unaligned

        def forward(self, x):
            return torch.relu(x + self.held) if is_constant else torch.relu(x)

    def is_unaligned(case):
        values = [*case.inputs, *(each for _, each in held_tensors(case.graph))]
        return any(each.storage_offset() for each in values)

    x = torch.ones(7) if is_constant else unaligned
    oracle = FakeOracle(is_unaligned)
    found = minimize(Problem(captured(Program(), x), oracle))
    assert is_unaligned(found.best) and found.finished
    assert any(not is_unaligned(case) for case in oracle.asked)


def test_a_late_step_has_its_turn_when_no_other_one_helps():
    seen = []

    def propose(case, facts):
        seen.append(len(facts.units))
        return drop_suffix.STEP.propose(case, facts)

    late = Step("late", propose, is_late=lambda case, facts: True)
    oracle = FakeOracle(has_ops("relu", "gelu"))
    result = minimize(problem(oracle), steps=(late, drop_prefix.STEP))
    assert result.nodes_after == 2 and result.finished
    assert set(seen) <= {13, 2}  # never the 24 of the given case
