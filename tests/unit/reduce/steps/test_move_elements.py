"""move_elements: any dimensions, each element on its own."""

import torch

from ctk.toolkit.reduce.steps.move_elements import STEP
from ctk.toolkit.reduce.value_edits import MoveElement
from tests.helpers.reduce_steps import X, edits, proposals, traced

FEW = torch.zeros(6, 5).index_put((torch.tensor([2, 3]), torch.tensor([0, 4])), torch.tensor(7.0))


def test_each_element_in_the_dimensions_in_which_it_is_not_in_front():
    found = proposals(STEP, traced(lambda x: x + 1, FEW))
    assert [edits(each) for each in found] == [
        [MoveElement("x", (6, 5), 10, (0,))],
        [MoveElement("x", (6, 5), 19, (0,)), MoveElement("x", (6, 5), 19, (1,))],
    ]
    assert edits(found[1])[1].says() == "x[3, 4] moved to x[3, 0]"


def test_many_elements_and_zeros_stay():
    assert proposals(STEP, traced(lambda x, y: x + y, X, torch.zeros(4, 4))) == []


def test_nothing_moves_onto_another():
    full = torch.zeros(3, 3)
    full[0, 0], full[2, 0] = 1, 2
    case = traced(lambda x: x + 1, full)
    assert MoveElement("x", (3, 3), 6, (0,)).apply(case, None) is None
