"""shrink_dimensions: all sizes at once, then each; what may not be chosen keeps its turn."""

import torch
import torch.nn.functional as F

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.dimensions.edit import Resize, ShrinkDimensions
from ctk.toolkit.reduce.dimensions.places import Place
from ctk.toolkit.reduce.steps import shrink_dimensions
from ctk.toolkit.reduce.steps.shrink_dimensions import STEP
from tests.helpers.reduce_steps import edits, proposals, traced


def said(found):
    return [[edit.says() for edit in edits(each)] for each in found if edits(each)]


def test_all_at_once_then_each_from_mild_to_strong():
    found = proposals(STEP, traced(lambda x: x.relu(), torch.randn(3, 2)))
    assert said(found) == [
        ["dimension 0 of x: 3 -> 1, dimension 1 of x: 2 -> 1"],
        ["dimension 0 of x: 3 -> 2", "dimension 0 of x: 3 -> 1"],
        ["dimension 1 of x: 2 -> 1"],
    ]


def test_what_is_one_size_is_proposed_once_and_alone():
    found = proposals(STEP, traced(lambda x, y: x + y, torch.randn(2), torch.randn(2)))
    alone = [edit for each in found for edit in edits(each) if edit.alone]
    assert said(found)[0] == ["dimension 0 of x: 2 -> 1"]
    assert [edit.says() for edit in alone] == [
        "dimension 0 of x: 2 -> 1", "dimension 0 of y: 2 -> 1",
    ]  # fmt: skip


def test_equal_sizes_are_proposed_together():
    found = proposals(STEP, traced(lambda x: x.relu(), torch.randn(3, 3)))
    assert said(found)[-1] == [
        "dimension 0 of x: 3 -> 2, dimension 1 of x: 3 -> 2",
        "dimension 0 of x: 3 -> 1, dimension 1 of x: 3 -> 1",
    ]


def test_places_keep_their_turn_when_they_shrink():
    small, large = (
        len(STEP.propose(case, facts_of(case)))
        for case in (traced(lambda x: x.relu(), torch.randn(*s)) for s in ((4, 5), (1, 5)))
    )
    assert small == large


def test_strides_and_padding_are_no_sizes():
    def run(x, w):
        return F.conv2d(x, w, stride=2, padding=3)

    found = proposals(STEP, traced(run, torch.randn(2, 4, 9, 9), torch.randn(5, 4, 3, 3)))
    assert "argument" not in str(said(found))


def test_groups_are_one():
    def run(x, w):
        return F.conv2d(x, w, groups=2)

    found = STEP.propose(
        case := traced(run, torch.randn(1, 4, 3, 3), torch.randn(6, 2, 1, 1)), facts_of(case)
    )
    assert "argument groups of conv2d: 2 -> 1" in str(said(found))


def test_a_scale_is_no_size():
    found = proposals(STEP, traced(lambda x: x / 8, torch.randn(3)))
    assert "argument" not in str(said(found))


def test_nothing_to_shrink_proposes_nothing():
    case = traced(lambda x: x.relu() + 1, torch.randn(1, 1))
    assert said(proposals(STEP, case)) == []


def test_large_graphs_are_left_to_other_steps(monkeypatch):
    case = traced(lambda x: x.relu().sin(), torch.randn(4))
    monkeypatch.setattr(shrink_dimensions, "MOST_NODES", 1)
    assert STEP.propose(case, facts_of(case)) == []


def test_from_the_start_too_where_something_notable_lies_elsewhere():
    x = torch.rand(3, 2)
    x[2, 0] = float("inf")
    found = proposals(STEP, traced(lambda x: x.relu(), x))
    resize = Resize(Place("input", "", "x", (0,)), 3, 2)
    assert ShrinkDimensions((resize,), from_start=True) in [e for p in found for e in edits(p)]
    assert sum(edit.from_start for each in found for edit in edits(each)) == 2
