"""cut: any combination of the inner units."""

from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.steps.cut import STEP
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_inner_units_in_any_combination():
    found = proposals(STEP, traced(lambda x: x.sin().cos().tanh().relu(), X))
    assert kinds(found) == ["subset"]
    assert edits(found[0]) == [RemoveNodes(("cos",)), RemoveNodes(("tanh",))]
    assert found[0].make(found[0].atoms) == RemoveNodes(("cos", "tanh"))


def test_two_units_have_no_middle():
    assert proposals(STEP, traced(lambda x: x.sin().cos(), X)) == []
