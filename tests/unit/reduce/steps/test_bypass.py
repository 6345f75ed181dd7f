"""bypass: a node becomes one of its arguments of the same kind; ends apart from inner nodes."""

import torch

from ctk.toolkit.reduce.edits import Bypass
from ctk.toolkit.reduce.steps.bypass import STEP
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_inner_nodes_first_then_the_ends():
    found = proposals(STEP, traced(lambda x: x.sin().cos().tanh(), X))
    assert kinds(found) == ["subset", "subset"]
    assert edits(found[0]) == [Bypass((("cos", "sin"),))]
    assert edits(found[1]) == [Bypass((("sin", "x"),)), Bypass((("tanh", "cos"),))]


def test_each_fitting_argument_in_its_turn():
    found = proposals(STEP, traced(lambda x, y: (x + y).sin().cos(), X, X))
    pairs = [pair for each in found for edit in edits(each) for pair in edit.pairs]
    assert [pair for pair in pairs if pair[0] == "add"] == [("add", "x"), ("add", "y")]


def test_another_shape_or_dtype_fits_not():
    assert proposals(STEP, traced(lambda x: x.sum(), X)) == []
    assert proposals(STEP, traced(lambda x: x.to(torch.float64), X)) == []


def test_a_part_of_a_tuple_may_become_what_was_taken_apart():
    found = proposals(STEP, traced(lambda x: torch.sort(x)[0].sin(), X))
    assert Bypass((("getitem", "x"),)) in [edit for each in found for edit in edits(each)]
