"""simplify_values: zeros for all, ones for all, then what suits each input."""

import torch

from ctk.toolkit.reduce.edits import SetValues
from ctk.toolkit.reduce.steps.simplify_values import STEP
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_zeros_ones_then_each_with_a_seed_of_its_own():
    found = proposals(STEP, traced(lambda x, y: x + y, X, X.clone()))
    assert kinds(found) == ["monotone", "monotone", "subset"]
    assert edits(found[0]) == [SetValues((("x", "zeros"), ("y", "zeros")))]
    assert edits(found[1]) == [SetValues((("x", "ones"), ("y", "ones")))]
    assert edits(found[2]) == [SetValues((("x", "randn:0"),)), SetValues((("y", "randn:1"),))]


def test_zeros_and_inputs_that_share_memory_stay():
    assert proposals(STEP, traced(lambda x: x + 1, torch.zeros(3))) == []
    assert proposals(STEP, traced(lambda x, y: x + y, X, X.t())) == []


def test_integers_stay_in_their_range():
    indices = torch.tensor([1, 0, 2])
    found = proposals(STEP, traced(lambda x, i: x[i], X, indices))
    of_i = [pair for each in found for edit in edits(each) for pair in edit.pairs if pair[0] == "i"]
    assert of_i == [("i", "zeros"), ("i", "ones"), ("i", "arange")]
