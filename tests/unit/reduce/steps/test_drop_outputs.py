"""drop_outputs: all but the result that is computed last, then any combination."""

from ctk.toolkit.reduce.edits import DropOutputs
from ctk.toolkit.reduce.steps.drop_outputs import STEP
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
