"""shrink_dimensions: all sizes at once, then each; what may not be chosen keeps its turn."""

import pytest
import torch
import torch.nn.functional as F

from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.dimensions.dimension_edits import Resize, ShrinkDimensions
from ctk.toolkit.reduce.dimensions.size_places import SizePlace
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.proposal import GaveUp
from ctk.toolkit.reduce.steps import shrink_dimensions
from ctk.toolkit.reduce.steps.shrink_dimensions import STEP
from tests.helpers.reduce_graphs import FakeOracle, has_ops, op_names
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
    assert STEP.propose(case, facts_of(case)) == [
        GaveUp("sizes are tried in graphs of at most 1 calls")
    ]


def test_a_graph_of_a_hundred_needed_calls_is_shrunk():
    def run(x):
        for _ in range(105):
            x = x.relu()
        return x

    needed = FakeOracle(lambda case: len(op_names(case)) == 105)
    result = minimize(Problem(traced(run, torch.randn(6, 4)), needed), (STEP,))
    assert (result.finished, result.best.inputs[0].shape) == (True, (1, 1))


@pytest.fixture
def twice():
    """An operator that no fake tensor runs."""
    library = torch.library.Library("ctk_test_shrink", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    yield torch.ops.ctk_test_shrink.twice.default
    library._destroy()


def test_without_fake_tensors_single_dimensions_are_tried(twice):
    case = traced(lambda x: twice(x).relu(), torch.randn(6, 4))
    result = minimize(Problem(case, FakeOracle(has_ops("relu"))), (STEP,))
    assert (result.finished, result.best.inputs[0].shape) == (True, (1, 1))


def test_without_fake_tensors_what_is_left_is_not_called_minimal(twice):
    def needed(case):
        return case.inputs[0].shape[0] >= 5

    case = traced(lambda x, w: twice(x) @ w, torch.randn(6, 4), torch.randn(4, 3))
    result = minimize(Problem(case, FakeOracle(needed)), (STEP,))
    assert [tuple(each.shape) for each in result.best.inputs] == [(5, 1), (1, 1)]
    assert not result.finished
    assert result.unfinished[0].startswith("shrink_dimensions: sizes that depend on each other")
    assert "ctk_test_shrink.twice" in result.unfinished[0]
    refused = [each.edit for each in result.certificate]
    assert "dimension 0 of x: 5 -> 4" in refused


def test_the_certificate_lists_the_sizes_that_were_tried():
    case = traced(lambda x: x.relu(), torch.randn(24, 1))
    result = minimize(
        Problem(case, FakeOracle(lambda case: case.inputs[0].shape[0] % 8 == 0)), (STEP,)
    )
    edits = [each.edit.removeprefix("dimension 0 of x: ") for each in result.certificate]
    assert edits == ["8 -> 1", "8 -> 2", "8 -> 4", "8 -> 6", "8 -> 7"]


def test_from_the_start_too_where_something_notable_lies_elsewhere():
    x = torch.rand(3, 2)
    x[2, 0] = float("inf")
    found = proposals(STEP, traced(lambda x: x.relu(), x))
    resize = Resize(SizePlace("input", "", "x", (0,)), 3, 2)
    assert ShrinkDimensions((resize,), from_start=True) in [e for p in found for e in edits(p)]
    assert sum(edit.from_start for each in found for edit in edits(each)) == 2
