"""shortcut: a value becomes any of those that it was computed from."""

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.steps.shortcut import STEP
from tests.helpers.reduce_graphs import op_names
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_every_ancestor_of_every_value_the_last_value_and_the_nearest_ancestor_first():
    found = proposals(STEP, traced(lambda x: x.sin().sum(0).cos(), X))
    assert kinds(found) == ["subset"]
    pairs = [edit.sources[0] for edit in edits(found[0])]
    assert pairs == [
        ("cos", "sum_1"), ("cos", "sin"), ("cos", "x"),
        ("sum_1", "sin"), ("sum_1", "x"), ("sin", "x"),
    ]  # fmt: skip


def test_both_arguments_have_their_turn():
    case = traced(lambda x, y: (x.sin() + y.cos()).tanh(), X, X)
    found = [edit for edit in edits(proposals(STEP, case)[0]) if edit.names == ("add",)]
    assert [edit.sources[0][1] for edit in found] == ["sin", "cos", "x", "y"]
    made = [edit.apply(case, facts_of(case)) for edit in found]
    assert [op_names(each) for each in made[:2]] == [["sin", "cos", "tanh"], ["sin", "cos", "tanh"]]


def test_a_large_program_proposes_a_bounded_number():
    def run(x):
        for _ in range(40):
            x = x.sin()
        return x

    assert len(edits(proposals(STEP, traced(run, X))[0])) <= 80
