"""simplify_values: zeros for all, ones for all, then what suits each tensor."""

import torch

from ctk.repro_templates.graph.values import randn
from ctk.toolkit.reduce.steps.simplify_values import STEP
from ctk.toolkit.reduce.value_edits import SetValues
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced

W = X.repeat(2, 3)


def test_zeros_ones_then_each_with_a_seed_of_its_own():
    found = proposals(STEP, traced(lambda x, y: x + y, W, W.clone()))
    assert kinds(found) == ["monotone", "monotone", "subset", "subset", "subset"]
    assert edits(found[0]) == [SetValues((("x", "zeros"), ("y", "zeros")))]
    assert edits(found[1]) == [SetValues((("x", "ones"), ("y", "ones")))]
    assert edits(found[2]) == [SetValues((("x", "zeros"),)), SetValues((("y", "zeros"),))]
    assert edits(found[3]) == [SetValues((("x", "ones"),)), SetValues((("y", "ones"),))]
    assert edits(found[4]) == [SetValues((("x", "randn:0"),)), SetValues((("y", "randn:1"),))]


def test_zeros_and_tensors_that_share_memory_stay():
    assert proposals(STEP, traced(lambda x: x + 1, torch.zeros(3))) == []
    assert proposals(STEP, traced(lambda x, y: x + y, X, X.t())) == []
    woven = randn((6,), seed=0).as_strided((3, 3), (1, 1))
    assert proposals(STEP, traced(lambda x: x + 1, woven)) == []


def test_ones_only_where_more_is_to_say():
    few = torch.zeros(4, 4).fill_diagonal_(3.0)
    found = proposals(STEP, traced(lambda x, y, z: x + y + z, few, torch.ones(4, 4), X + 5))
    assert edits(found[1]) == [SetValues((("z", "ones"),))]


def test_constants_of_the_graph_are_named_as_roles_name_them():
    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", W.clone())

        def forward(self, x):
            return x + self.table

    found = proposals(STEP, traced(Holding(), torch.zeros(8, 12)))
    assert edits(found[0]) == [SetValues((("self.table", "zeros"),))]


def test_integers_stay_in_their_range():
    indices = torch.tensor([1, 0, 2, 2, 1, 0]).repeat(9)
    found = proposals(STEP, traced(lambda x, i: x[i], X, indices))
    of_i = [pair for each in found for edit in edits(each) for pair in edit.pairs if pair[0] == "i"]
    assert dict.fromkeys(of_i) == {("i", "zeros"): None, ("i", "ones"): None}
    later = torch.tensor([5, 7, 9, 6, 8]).repeat(9)
    found = proposals(STEP, traced(lambda x, i: x[i], W.t(), later))
    of_i = [pair for each in found for edit in edits(each) for pair in edit.pairs if pair[0] == "i"]
    assert ("i", "zeros") in of_i and ("i", "ones") in of_i
