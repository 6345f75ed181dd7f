"""simplify_numbers: ladders for what is few, roundings for what is many."""

import torch

from ctk.repro_templates.graph.values import randn
from ctk.toolkit.reduce.steps.simplify_numbers import STEP
from ctk.toolkit.reduce.value_edits import RoundValues, SetNumber
from tests.helpers.reduce_steps import X, edits, proposals, traced


def test_many_values_are_rounded_together():
    (found,) = proposals(STEP, traced(lambda x: x * 3, X * 7))
    assert edits(found) == [RoundValues(("x",), "whole numbers"), RoundValues(("x",), "signs")]
    assert proposals(STEP, traced(lambda x: x * 3, randn((12, 12), seed=0))) == []


def test_a_run_gets_the_least_whole_number_that_is_enough():
    few = torch.zeros(12, 12)
    few[3, 4] = 2.5
    whole, digits = proposals(STEP, traced(lambda x: x + 1, few))
    assert [edit.value for edit in edits(whole)] == [3.0, 2.0, 1.0]
    assert edits(digits) == [SetNumber("x", (12, 12), 40, 41, 2.5, 2.0)]
    assert [edit.says() for edit in edits(whole)][:2] == ["x[3, 4]: 2.5 -> 3", "x[3, 4]: 2.5 -> 2"]


def test_ones_and_zeros_stay():
    assert proposals(STEP, traced(lambda x, y: x + y, torch.ones(4, 4), torch.zeros(4, 4))) == []
