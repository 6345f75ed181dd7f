"""fewest_nonzeros: the largest alone, then blocks, level by level."""

import torch

from ctk.repro_templates.graph.values import randn
from ctk.toolkit.reduce.steps.fewest_nonzeros import STEP
from ctk.toolkit.reduce.value_edits import KeepLargest
from tests.helpers.reduce_steps import edits, kinds, proposals, traced

W = randn((12, 12), seed=3)


def test_the_largest_first_then_the_blocks_of_the_first_level():
    found = proposals(STEP, traced(lambda x: x + 1, W))
    assert kinds(found) == ["guesses", "subset"]
    assert edits(found[0]) == [KeepLargest(("x",), 1), KeepLargest(("x",), 8)]
    spans = [edit.spans for edit in edits(found[1])]
    assert spans == [((0, 64),), ((64, 128),), ((128, 144),)]


def test_a_level_below_is_proposed_once_a_block_is_zero():
    partly = W.clone()
    partly.view(-1)[64:] = 0
    found = proposals(STEP, traced(lambda x: x + 1, partly))
    blocks = [[edit.spans for edit in edits(each)] for each in found[1:]]
    assert blocks[1] == [((start, start + 16),) for start in range(0, 64, 16)]
    assert [len(level) for level in blocks] == [1, 4, 16]


def test_a_few_are_asked_about_one_by_one_and_one_not_at_all():
    few = torch.zeros(12, 12)
    few[3, 4], few[3, 5] = 7.0, -2.0
    found = proposals(STEP, traced(lambda x: x + 1, few))
    assert edits(found[0]) == [KeepLargest(("x",), 1)]
    assert [e.says() for e in edits(found[-1])] == ["x[3, 4] = 0", "x[3, 5] = 0"]
    few[3, 5] = 0
    assert proposals(STEP, traced(lambda x: x + 1, few)) == []  # what is left asks simplify_values


def test_all_tensors_together_first():
    found = proposals(STEP, traced(lambda x, y: x + y, W, W.t().contiguous()))
    assert edits(found[0]) == [KeepLargest(("x", "y"), 1), KeepLargest(("x", "y"), 8)]
