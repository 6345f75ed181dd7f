"""inline_subgraph: each sub-graph of each call, one at a time."""

import torch

from ctk.toolkit.reduce.edits import InlineCall
from ctk.toolkit.reduce.steps.inline_subgraph import STEP
from tests.helpers.reduce_graphs import captured
from tests.helpers.reduce_steps import X, edits, kinds, proposals, traced


def test_each_branch_alone():
    def run(p, x):
        return torch.cond(p, torch.sin, torch.cos, (x,))

    found = proposals(STEP, captured(run, torch.tensor(True), X))
    assert kinds(found) == ["monotone", "monotone"]
    targets = ["cond_true_0", "cond_false_0"]
    assert [edits(each) for each in found] == [[InlineCall("cond", each)] for each in targets]


def test_without_sub_graphs_there_is_nothing_to_propose():
    assert proposals(STEP, traced(lambda x: x.sin(), X)) == []
