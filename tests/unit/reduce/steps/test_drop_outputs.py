"""drop_outputs: all but the result that is computed last, then any combination."""

import pytest
import torch

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.edits import DropOutputs
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps.drop_outputs import STEP, LeaveUnread
from tests.helpers.reduce_graphs import FakeOracle, feeds, has_ops, op_names
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_all_but_the_last_computed_then_each():
    def run(x):
        first = x.sin()
        return first.cos(), x, first

    found = proposals(STEP, traced(run, X))
    assert kinds(found) == ["guesses", "subset"]
    assert edits(found[0]) == [DropOutputs((1, 2))]
    assert edits(found[1]) == [DropOutputs((0,)), DropOutputs((1,)), DropOutputs((2,))]


def test_a_single_result_stays():
    assert proposals(STEP, traced(lambda x: x.sin(), X)) == []


def test_a_node_stays_without_the_parts_that_are_only_results():
    def run(x):
        low, high = torch.split(x, 2)
        part = torch.topk(x, 2)[0]
        return low, high, part, part.cos()

    case = traced(run, X)
    found = proposals(STEP, case)
    assert edits(found[-1]) == [LeaveUnread(("split",))]
    result = edits(found[-1])[0].apply(case, facts_of(case))
    assert result is not None and len(result.graph(*result.inputs)) == 2
    assert op_names(result) == ["split", "topk", "getitem", "cos"]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (has_ops("topk"), ["topk"]),
        (has_ops("topk", "sin"), ["topk", "sin"]),
        (feeds("topk", "getitem"), ["topk", "getitem"]),
    ],
)
def test_a_part_is_taken_only_where_that_is_needed(predicate, expected: list[str]):
    case = traced(lambda x: torch.topk(x.sin(), 2)[1].float().exp(), X)
    best = minimize(Problem(case, FakeOracle(predicate))).best
    assert sorted(op_names(best)) == sorted(expected)
