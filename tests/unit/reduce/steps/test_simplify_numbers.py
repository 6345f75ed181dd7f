"""simplify_numbers: ladders for what is few, roundings for what is many."""

import math

import pytest
import torch

from ctk.repro_templates.graph.values import randn
from ctk.toolkit.case.formats.tensor_content import Number, rank_of
from ctk.toolkit.reduce.steps.simplify_numbers import STEP, Ladder, ladders
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


@pytest.mark.parametrize("value", [-0.0, 5e-324, -1e-310, 1e308, -3e38, math.inf, math.nan, 0.1])
def test_every_rung_of_an_unusual_float_is_simpler(value: float):
    check_ladders(value, torch.float64)


@pytest.mark.parametrize("value", [10**18, -(2**63), 2**64 - 1, 100_000, 4096, 54321, -1025])
def test_every_rung_of_a_large_integer_is_simpler_and_the_rungs_are_few(value: int):
    found = check_ladders(value, torch.int64)
    assert sum(ladder.count for ladder in found) <= 64
    assert found[0].number(found[0].count) == (-1 if value < 0 else 1)


@pytest.mark.parametrize("value", [complex(-0.0, math.nan), complex(math.inf, -3e5), 0.037 + 2j])
def test_every_rung_of_an_unusual_complex_number_is_simpler(value: complex):
    check_ladders(value, torch.complex128)


def check_ladders(value: Number, dtype: torch.dtype) -> tuple[Ladder, ...]:
    found = ladders(value, dtype)
    for ladder in found:
        for rung in range(1, ladder.count + 1):
            assert rank_of(ladder.number(rung)) < rank_of(value), ladder.number(rung)
    return found
