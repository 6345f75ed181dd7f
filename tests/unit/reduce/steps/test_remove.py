"""remove: any inner units, then any of the ends; who read them is fed from their ancestors."""

import torch

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.edits import Reconnect
from ctk.toolkit.reduce.steps.remove import STEP
from tests.helpers.reduce_graphs import op_names
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def applied(edit, case):
    result = edit.apply(case, facts_of(case))
    result.graph(*result.inputs)
    return result


def test_inner_units_first_then_the_ends():
    found = proposals(STEP, traced(lambda x: x.sin().cos().tanh(), X))
    assert kinds(found) == ["subset", "subset"]
    assert edits(found[0]) == [Reconnect(("cos",))]
    assert edits(found[1]) == [Reconnect(("sin",)), Reconnect(("tanh",))]


def test_a_reader_is_fed_straight_from_an_ancestor_of_another_shape_and_dtype():
    case = traced(lambda x: x.relu().sum(0).double().cos(), X)
    result = applied(Reconnect(("sum_1", "double")), case)
    assert op_names(result) == ["relu", "cos"]
    assert result.graph(X)[0].shape == (4, 4)


def test_a_reader_that_takes_no_other_form_gets_it_by_an_adapter():
    weight = torch.ones(3, 5)
    case = traced(lambda x, w: torch.mm(x.relu()[:2, :3].cos(), w), X, weight)
    result = applied(Reconnect(("getitem", "cos")), case)
    assert op_names(result) == ["relu", "amax", "expand", "mm"]


def test_a_value_of_the_same_size_is_reshaped():
    case = traced(lambda x: torch.mm(x.relu().reshape(2, 8).sin(), torch.ones(8, 2)), X)
    result = applied(Reconnect(("reshape", "sin")), case)
    assert op_names(result)[:2] == ["relu", "reshape"]
    assert "sin" not in op_names(result)


def test_a_value_without_an_ancestor_becomes_an_input_with_its_own_value():
    case = traced(lambda x, n: torch.full((4, 4), n) + x.sin(), X, 3.0)
    result = applied(Reconnect(("full",)), case)
    assert op_names(result) == ["sin", "add"]
    assert torch.equal(result.inputs[-1], torch.full((4, 4), 3.0))


def test_what_lost_all_readers_becomes_a_result():
    def run(x):
        return x.sin().cos(), x.tanh()

    result = applied(Reconnect(("cos",)), traced(run, X))
    assert len(result.graph(X)) == 2


def test_a_written_leaf_is_cut_off():
    def run(x):
        y = x.sin()
        y.add_(1)
        return y.cos()

    leaf = X.clone().requires_grad_()
    result = applied(Reconnect(("sin",)), traced(run, leaf))
    assert op_names(result) == ["add_", "cos"]
    assert not result.inputs[0].requires_grad
