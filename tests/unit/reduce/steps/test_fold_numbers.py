"""fold_numbers: symbolic sizes, then computed numbers, then number inputs."""

import dataclasses

from ctk.toolkit.reduce.edits import FixSizes, FoldNumbers
from ctk.toolkit.reduce.steps.fold_numbers import STEP
from tests.helpers.reduce_steps import X, edits, proposals, traced


def test_sizes_then_calls_then_inputs():
    case = traced(lambda x, n: x.view(x.size(0), -1) * n, X, 3)
    case = dataclasses.replace(case, dynamic={"x": ("s0", "s1")})
    sizes, calls, inputs = proposals(STEP, case)
    assert edits(sizes) == [FixSizes(("s0",)), FixSizes(("s1",))]
    assert edits(calls) == [FoldNumbers(("size",))]
    assert edits(inputs) == [FoldNumbers(("n",))]


def test_a_program_without_numbers_has_nothing_to_fold():
    assert [edits(each) for each in proposals(STEP, traced(lambda x: x.sin(), X))] == [[], [], []]
