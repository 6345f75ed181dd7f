"""drop_suffix: one unit, two, ... from the end; an edit exists only while it is asked about."""

import pytest

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.edits import RemoveNodes
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.steps.drop_prefix import STEP as DROP_PREFIX
from ctk.toolkit.reduce.steps.drop_suffix import STEP
from tests.helpers.reduce_graphs import FakeOracle, has_ops
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_units_from_the_end():
    found = proposals(STEP, traced(lambda x: x.sin().cos().tanh(), X))
    assert kinds(found) == ["monotone"]
    assert edits(found[0]) == [RemoveNodes(("tanh",)), RemoveNodes(("cos", "tanh"))]


def test_a_call_that_returns_a_tuple_goes_with_its_parts():
    def run(x):
        parts = x.sin().split(2)
        return parts[0] + parts[1]

    (found,) = proposals(STEP, traced(run, X))
    assert edits(found) == [
        RemoveNodes(("add",)),
        RemoveNodes(("split", "getitem", "getitem_1", "add")),
    ]


def test_one_unit_is_left_alone():
    assert proposals(STEP, traced(lambda x: x.sin(), X)) == []


@pytest.mark.parametrize("step", [STEP, DROP_PREFIX], ids=lambda step: step.name)
def test_an_edit_is_made_when_it_is_asked_about(step, monkeypatch: pytest.MonkeyPatch):
    """A list of all edits holds n * n / 2 names: 2 GB for 20,000 nodes."""
    made: list[int] = []
    initialize = RemoveNodes.__init__

    def counted(edit, names):
        made.append(len(names))
        initialize(edit, names)

    def run(x):
        for _ in range(400):
            x = x.sin()
        return x

    monkeypatch.setattr(RemoveNodes, "__init__", counted)
    case = traced(run, X)
    (found,) = step.propose(case, facts_of(case))
    assert (found.count, made) == (399, [])
    result = minimize(Problem(case, FakeOracle(has_ops("sin"))), (step,))
    counts = result.statistics[step.name]
    asked = counts.questions + counts.cached + counts.not_applicable + counts.not_smaller
    assert len(made) == asked < 30
