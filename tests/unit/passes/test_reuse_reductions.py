"""A whole maximum comes from the maxima of rows, where both are there and nothing is lost."""

import pytest
import torch

from ctk.compiler.passes.post_grad import reuse_reductions
from tests.helpers.passes import aten_graph, rules_of, run_pass, unchanged

X = torch.randn(6, 5, 4)
X[2, 1, 3] = torch.nan


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.amax(1), x.amax()),
        lambda x: (x.max(), x.amax(-1, keepdim=True)),
        lambda x: (x.amin((0, 2)), x.min() * 2),
        lambda x: (x.amin(1), x.amin(2), x.min()),
        lambda x: (x.amax(-1), x.neg(), x.amax()),
    ],
)
def test_the_whole_comes_from_the_rows(function):
    gm = aten_graph(function, X)
    expected = gm(X)
    record = run_pass(gm, reuse_reductions.PASS, stage="forward")
    assert len(rules_of(record)) == 1
    for a, b in zip(gm(X), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
        assert a.stride() == b.stride()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.amax((0, 1, 2)), x.max()),
        lambda x: (x.amax(1), x.amin()),
        lambda x: (x.amax(1), x.neg().amax()),
        lambda x: (x.mT.amax(1), x.mT.amax()),
        lambda x: (x.amax(1), x.mul_(2), x.amax()),
    ],
)
def test_others_stay(function):
    assert unchanged(function, reuse_reductions.PASS, X.clone(), stage="forward")
