"""drop_unused: dead calls and inputs without users; nothing with an effect, no needed size."""

import torch

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.edits import DropUnused
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps.drop_unused import STEP
from tests.helpers.reduce_graphs import FakeOracle, captured, has_ops, op_names
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_dead_calls_and_inputs_in_any_combination():
    def run(x, y):
        x.cos()
        return x.sin()

    found = proposals(STEP, traced(run, X, X))
    assert kinds(found) == ["subset"]
    assert edits(found[0]) == [DropUnused(("y",)), DropUnused(("cos",))]


def test_a_dead_call_stays_without_the_dead_calls_that_read_it():
    def run(x):
        torch.split(x, 1)[0].cos()
        return x.sin()

    case = traced(run, X)
    (found,) = proposals(STEP, case)
    assert [edit.names for edit in edits(found)] == [("split",), ("getitem",), ("cos",)]
    made = [edit.apply(case, facts_of(case)) for edit in edits(found)]
    assert [op_names(each) for each in made] == [
        ["sin"],
        ["split", "sin"],
        ["split", "getitem", "sin"],
    ]
    best = minimize(Problem(case, FakeOracle(has_ops("split", "sin")))).best
    assert op_names(best) == ["split", "sin"]


def test_an_in_place_call_and_what_is_used_stay():
    def run(x):
        y = x.sin()
        y.add_(1)
        return y

    assert proposals(STEP, traced(run, X)) == []


def test_a_symbolic_size_stays_while_a_tensor_has_it():
    case = captured(lambda x: x.sin(), X[:3], dynamic=True)
    assert len(case.inputs) > 1
    assert proposals(STEP, case) == []
