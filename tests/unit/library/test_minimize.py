"""ctk.minimize: any graph, any predicate."""

import gc
import operator
import random
import sys
import time
from collections.abc import Callable, Iterator
from itertools import chain, cycle, repeat
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx import GraphModule, symbolic_trace

import ctk
from ctk.compiler.errors import ConfigError, DoesNotReproduce, PredicateError, ProgramError
from ctk.toolkit.operations.minimize import Predicate
from ctk.toolkit.oracle.repeated_runs import ASKED_FIRST, QUICK_SECONDS


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(torch.sin(x) * 2 + 1)


def long_graph() -> GraphModule:
    def cosines(x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = torch.cos(x)
        return x

    return symbolic_trace(cosines)


def graph() -> GraphModule:
    return symbolic_trace(program)


def names(gm: GraphModule) -> list[str]:
    return [node.name for node in gm.graph.nodes]


def has(function: object) -> Predicate:
    return lambda gm, inputs: any(node.target is function for node in gm.graph.nodes)


X = [torch.linspace(-1, 1, 6).reshape(2, 3)]


def test_smallest_graph_its_inputs_and_what_it_cost() -> None:
    found = ctk.minimize(graph(), X, has(operator.mul))
    assert [n.op for n in found.graph.graph.nodes] == ["placeholder", "call_function", "output"]
    assert (found.finished, found.reason) == (True, "minimal")
    assert (found.nodes_before, found.nodes_after) == (4, 1)
    assert sum(counts.questions for counts in found.statistics.values()) == found.questions
    found.graph(*found.inputs)


def test_values_may_be_what_fails() -> None:
    def negative(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        (x,) = inputs
        assert isinstance(x, torch.Tensor)
        return bool((x < 0).any()) and has(torch.sin)(gm, inputs) is True

    found = ctk.minimize(graph(), X, negative)
    assert names(found.graph) == ["x", "sin", "output"]
    (x,) = found.inputs
    assert isinstance(x, torch.Tensor)
    assert (x < 0).any()


def test_a_verdict_is_understood() -> None:
    def judge(gm: GraphModule, inputs: tuple[object, ...]) -> ctk.Verdict:
        return ctk.Verdict.REPRODUCES if has(torch.sin)(gm, inputs) else ctk.Verdict.DIFFERENT

    assert names(ctk.minimize(graph(), X, judge).graph) == ["x", "sin", "output"]


def test_a_graph_with_leaf_modules() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))

    def has_tanh(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        gm(*inputs)
        calls = [node.target for node in gm.graph.nodes if node.op == "call_module"]
        return any(isinstance(gm.get_submodule(str(t)), torch.nn.Tanh) for t in calls)

    found = ctk.minimize(symbolic_trace(model), X, has_tanh)
    assert found.nodes_after == 1


def test_what_was_given_stays_as_it_is_whatever_the_predicate_does() -> None:
    gm, x = graph(), torch.ones(3)
    before = gm.code

    def vandal(candidate: GraphModule, inputs: tuple[object, ...]) -> bool:
        (mine,) = inputs
        assert isinstance(mine, torch.Tensor)
        fails = has(torch.sin)(candidate, inputs) is True and bool((mine == 1).all())
        mine.zero_()
        for node in list(candidate.graph.nodes):
            if node.target is torch.sin:
                node.target = torch.cos
        return fails

    found = ctk.minimize(gm, [x], vandal)
    assert names(found.graph) == ["x", "sin", "output"]
    assert gm.code == before
    assert torch.equal(x, torch.ones(3))


def test_an_exception_names_the_candidate_and_keeps_the_smallest_so_far() -> None:
    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        if len(gm.graph.nodes) < 5:
            raise ValueError("too small for me")
        return True

    with pytest.raises(PredicateError, match="ValueError: too small for me") as caught:
        ctk.minimize(long_graph(), X, fails)
    assert isinstance(caught.value.__cause__, ValueError)
    assert "cos = " in str(caught.value)
    assert 5 <= len(caught.value.graph.graph.nodes) < 14
    caught.value.graph(*caught.value.inputs)


def test_a_predicate_that_hardly_ever_says_yes_is_refused_at_the_start() -> None:
    asked: list[object] = []

    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        asked.append(gm)
        return len(asked) == 2

    with pytest.raises(DoesNotReproduce, match=r"the predicate is flaky: it fails in 1 of 20 runs"):
        ctk.minimize(graph(), X, fails)
    assert len(asked) == 20


def test_a_predicate_that_answers_by_chance_is_asked_several_times() -> None:
    """It says yes of every second graph that has both: each is asked until it does."""
    coin = random.Random(7)

    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> object:
        both = has(torch.sin)(gm, inputs) and has(torch.relu)(gm, inputs)
        return both and coin.random() < 0.5

    found = ctk.minimize(graph(), X, fails)
    assert (found.finished, names(found.graph)) == (True, ["x", "sin", "relu", "output"])
    assert found.flakiness is not None
    assert found.flakiness.given.asked == 20
    assert 0 < found.flakiness.error_probability <= 0.01
    assert found.flakiness.most_runs >= 8


def test_a_steady_predicate_that_takes_time_is_asked_little() -> None:
    asked: list[int] = []

    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> object:
        asked.append(len(gm.graph.nodes))
        if len(asked) == 1:
            time.sleep(QUICK_SECONDS)
        return has(torch.sin)(gm, inputs)

    found = ctk.minimize(graph(), X, fails)
    assert found.flakiness is None
    assert asked.count(asked[0]) == ASKED_FIRST


@pytest.mark.parametrize("seed", range(4))
def test_a_predicate_that_mostly_says_yes_is_noticed(seed: int) -> None:
    coin = random.Random(seed)

    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> object:
        return has(torch.sin)(gm, inputs) and coin.random() < 0.8

    found = ctk.minimize(graph(), X, fails)
    assert (found.finished, names(found.graph)) == (True, ["x", "sin", "output"])
    assert found.flakiness is not None and found.flakiness.error_probability <= 0.01


def answering(small: Iterator[bool]) -> Predicate:
    """Return a predicate that says yes of a graph with sin and relu; of sin alone by turns."""

    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        if not has(torch.sin)(gm, inputs):
            return False
        return True if has(torch.relu)(gm, inputs) else next(small)

    return fails


def test_a_graph_that_fails_by_chance_only_when_it_is_small_is_searched_again() -> None:
    told: list[int] = []
    fails = answering(cycle((True, False)))
    found = ctk.minimize(graph(), X, fails, on_progress=lambda state: told.append(state.questions))
    assert (found.finished, names(found.graph)) == (True, ["x", "sin", "output"])
    assert found.flakiness is not None and found.flakiness.given.asked == 20
    assert found.flakiness.most_runs >= 7
    assert told == list(range(1, found.questions + 1))  # both searches count on
    assert sum(counts.questions for counts in found.statistics.values()) == found.questions
    assert found.nodes_before == 4
    ended = ctk.minimize(
        graph(), X, answering(cycle((True, False))), max_questions=found.questions - 1
    )
    assert (ended.reason, ended.questions) == ("questions", found.questions - 1)


def test_a_smallest_graph_that_hardly_fails_again_is_not_called_minimal() -> None:
    found = ctk.minimize(graph(), X, answering(chain([True], repeat(False))))
    assert (found.finished, found.reason) == (False, "incomplete")
    (problem,) = found.problems
    assert "the smallest graph is flaky: it fails in 1 of 20 runs only" in problem


def test_a_predicate_that_says_no_is_refused() -> None:
    with pytest.raises(DoesNotReproduce, match="nothing to reduce"):
        ctk.minimize(graph(), X, lambda gm, inputs: False)


def test_a_forgotten_return_is_noticed() -> None:
    with pytest.raises(PredicateError, match="returned None"):
        ctk.minimize(graph(), X, lambda gm, inputs: None)


def test_a_return_forgotten_in_one_branch_keeps_the_smallest_so_far() -> None:
    with pytest.raises(PredicateError, match=r"returned None; .*\non candidate") as caught:
        ctk.minimize(long_graph(), X, lambda gm, inputs: len(gm.graph.nodes) > 4 or None)
    assert 5 <= len(caught.value.graph.graph.nodes) < 14


async def later(*given: object) -> bool:
    return True


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda gm, inputs: gm(*inputs) > -100, r"returned a tensor, bool\[\d"),
        (lambda gm, inputs: "yes", r"returned 'yes' \(str\); it must return True, False"),
        (lambda gm, inputs: "passes", r"returned 'passes' \(the verdict is ctk.Verdict.PASSES\)"),
        (lambda gm, inputs: 1, r"returned 1 \(int\)"),
        (lambda gm, inputs: object(), "returned an object of type object"),
        (lambda gm, inputs: (True for _ in inputs), "returned an object of type generator"),
        (later, "returned a coroutine"),
        (lambda gm, inputs: sys.exit(3), r"raised SystemExit: 3"),
    ],
)
def test_an_answer_that_is_neither_yes_nor_no(answer: Callable[..., object], said: str) -> None:
    with pytest.raises(PredicateError, match=said):
        ctk.minimize(graph(), X, answer)
    gc.collect()  # a coroutine that nobody closed would warn now


@pytest.mark.parametrize("yes", [True, np.True_, torch.tensor(True), ctk.Verdict.REPRODUCES])
def test_an_answer_that_is_yes(yes: object) -> None:
    assert ctk.minimize(graph(), X, lambda gm, inputs: yes).nodes_after == 1


def test_a_graph_that_does_not_run_in_eager() -> None:
    with pytest.raises(ProgramError, match=r"does not run in eager .* invalid for input of size 6"):
        ctk.minimize(symbolic_trace(lambda x: torch.sin(x).view(7)), X, has(torch.sin))


@pytest.mark.parametrize("value", [torch.nn.Linear(3, 3), program, graph().graph])
def test_what_is_no_graph_module(value: Any) -> None:
    with pytest.raises(ProgramError, match=f"not a {type(value).__name__}"):
        ctk.minimize(value, X, has(torch.sin))


def test_inputs_without_data() -> None:
    found = ctk.minimize(graph(), [torch.empty(2, 3, device="meta")], has(torch.sin))
    assert names(found.graph) == ["x", "sin", "output"]


def test_ctrl_c_keeps_the_smallest_so_far() -> None:
    def fails(gm: GraphModule, inputs: tuple[object, ...]) -> bool:
        if len(gm.graph.nodes) < 5:
            raise KeyboardInterrupt
        return True

    found = ctk.minimize(long_graph(), X, fails)
    assert (found.finished, found.reason) == (False, "interrupted")
    assert 5 <= len(found.graph.graph.nodes) < 14


def test_a_budget_ends_the_search() -> None:
    found = ctk.minimize(graph(), X, has(torch.sin), max_questions=2)
    assert (found.finished, found.reason, found.questions) == (False, "questions", 2)


def test_inputs_that_are_not_those_of_the_graph() -> None:
    with pytest.raises(ctk.CtkError, match=r"takes 1 input \(x\), and got 0"):
        ctk.minimize(graph(), [], has(torch.sin))


@pytest.mark.parametrize("inputs", [2, "abc"])
def test_inputs_that_are_no_sequence(inputs: Any) -> None:
    with pytest.raises(ProgramError, match=f"inputs is a {type(inputs).__name__}"):
        ctk.minimize(graph(), inputs, has(torch.sin))


@pytest.mark.parametrize("limit", ["many", -1, 0, True])
def test_a_limit_that_is_no_count_is_refused_before_anything_is_asked(limit: Any) -> None:
    asked: list[object] = []
    for operation in (ctk.minimize, ctk.minify, ctk.diagnose):
        arguments: Any = (graph(), X, asked.append) if operation is ctk.minimize else (graph(), X)
        with pytest.raises(ConfigError, match=r"max_questions is .*; it must be a count, from 1"):
            operation(*arguments, max_questions=limit)
    assert not asked
