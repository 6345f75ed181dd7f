"""drop_prefix: one unit, two, ... from the start."""

from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.steps.drop_prefix import STEP
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_units_from_the_start():
    found = proposals(STEP, traced(lambda x: x.sin().cos().tanh(), X))
    assert kinds(found) == ["monotone"]
    assert edits(found[0]) == [RemoveNodes(("sin",)), RemoveNodes(("sin", "cos"))]


def test_one_unit_is_left_alone():
    assert proposals(STEP, traced(lambda x: x.sin(), X)) == []
