"""Where slices, parts and updates must stay as they are."""

import pytest
import torch

from ctk.compiler.passes.post_grad import simplify_slices, simplify_split_cat
from tests.helpers.passes import aten_graph, rules_of, run_pass

aten = torch.ops.aten
X, Y = torch.randn(4, 4), torch.randn(4, 4)


def is_untouched(function, step, tracing_mode="fake"):
    gm = aten_graph(function, X.clone(), Y, tracing_mode=tracing_mode)
    return rules_of(run_pass(gm, step, stage="forward")) == []


def written_meanwhile(x, y):
    part = x[1:3]
    old = part.clone()
    x.add_(1)
    return aten.slice_scatter(x, part, 0, 1, 3).sin(), old


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: x[1:][:, 1:],  # along another dimension
        lambda x, y: x[1:][::2],
        lambda x, y: x[::2][1:],
        lambda x, y: x[1:].select(1, 0),
        lambda x, y: x[1:3].squeeze(0),  # does nothing
        lambda x, y: aten.slice_scatter(x, x[1:3], 0, 1, 3),  # leaves the graph: a copy
        lambda x, y: aten.slice_scatter(x, x[1:3], 0, 2, 4).sin(),  # of other rows
        lambda x, y: aten.slice_scatter(x, y[1:3], 0, 1, 3).sin(),
        lambda x, y: aten.slice_scatter(x, y[:2], 0, 0, 9, 2).sin(),
        lambda x, y: aten.slice_scatter(x, y.double(), 0).sin(),  # converts
        lambda x, y: aten.slice_scatter(x, y.t(), 0).view(16).sin(),  # no such view of y.t()
        lambda x, y: aten.select_scatter(x, x[1], 0, 2).sin(),
        written_meanwhile,
    ],
)
def test_simplify_slices_must_not_fire(function):
    assert is_untouched(function, simplify_slices.PASS)


def test_simplify_slices_adds_no_guards():
    assert is_untouched(lambda x, y: x[1:][:-1].sin(), simplify_slices.PASS, "symbolic")


def written_behind_the_inner(x, y):
    inner = torch.cat([x, y])
    x.add_(1)
    return torch.cat([inner, y]), x.sin()


@pytest.mark.parametrize(
    "function",
    [
        written_behind_the_inner,
        lambda x, y: torch.cat([x[:2], x[3:]]).cumsum(0),  # a hole
        lambda x, y: torch.cat([x[2:], x[:2]]).cumsum(0),  # another order
        lambda x, y: torch.cat([x[:3], x[2:]]).cumsum(0),  # a row twice
        lambda x, y: torch.cat([x[:2], y[2:]]).cumsum(0),
        lambda x, y: torch.cat([x, y])[3:5].cumsum(0),  # of two pieces
        lambda x, y: torch.cat([x, y])[5:6],  # leaves the graph
        lambda x, y: torch.cat([x.t(), y])[1:2].sin(),  # has other strides, and leaves
        lambda x, y: torch.cat([x, y.double()])[1:2].sin(),
    ],
)
def test_parts_of_concatenations_must_stay(function):
    assert is_untouched(function, simplify_split_cat.PASS)
