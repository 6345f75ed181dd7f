"""drop_passed_on: the results that no node computes, all at once first."""

from ctk.toolkit.reduce.edits import DropOutputs
from ctk.toolkit.reduce.steps.drop_passed_on import STEP
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_inputs_that_are_results():
    found = proposals(STEP, traced(lambda x, y: (x, x.sin(), y), X, X))
    assert kinds(found) == ["subset"]
    assert edits(found[0]) == [DropOutputs((0,)), DropOutputs((2,))]


def test_some_result_stays():
    assert proposals(STEP, traced(lambda x, y: (x, y), X, X)) == []
    assert proposals(STEP, traced(lambda x: (x.sin(), x.cos()), X)) == []
