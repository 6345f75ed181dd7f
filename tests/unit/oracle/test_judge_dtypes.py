"""The in-process oracle where a result has another dtype: its numbers may be wrong besides."""

import os

import pytest
import torch
from torch import fx

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict

WRONG, DTYPE = Signature("accuracy"), Signature("dtype")
X = torch.linspace(-1, 1, 12).reshape(3, 4)


def giving(function):
    """Return a target that compiles everything to `function`."""
    return lambda gm, example_inputs: function


@pytest.mark.parametrize("expected", [WRONG, DTYPE])
def test_a_result_of_another_dtype_may_have_wrong_numbers_besides(judged, expected):
    x = torch.tensor([127], dtype=torch.int8)
    answer = judged(lambda x: x + 0, (x,), giving(lambda x: x.long() - 256), expected=expected)
    assert (answer.verdict, answer.signature.kind) == (Verdict.REPRODUCES, expected.kind)


def test_a_result_of_another_dtype_has_the_right_numbers(judged):
    answer = judged(lambda x: x + 0, (X,), giving(lambda x: x.double()), expected=WRONG)
    assert (answer.verdict, answer.signature.kind) == (Verdict.DIFFERENT, "dtype")


def test_numbers_of_chance_beside_another_dtype_count_for_nothing(judged):
    def race(x):
        return x + int.from_bytes(os.urandom(2)) / 100

    graph = fx.Graph()
    graph.output(graph.call_function(race, (graph.placeholder("x"),)))
    other = giving(lambda x: race(x).double())
    answer = judged(fx.GraphModule({}, graph), (X,), other, expected=WRONG)
    assert (answer.verdict, answer.signature.kind) == (Verdict.DIFFERENT, "dtype")
