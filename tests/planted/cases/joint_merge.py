"""A pass written for the rewriter merges reductions over different dimensions of equal size."""

import torch

from ctk.compiler.rewriting.base import Pass
from ctk.compiler.rewriting.rewriter import Rewriter

aten = torch.ops.aten
EXPECT = {
    "stage": "joint",
    "pass": "merge_sums",
    "rewrites_in_pass": 2,
    "index": 2,
    "rule": "sum(x, d) twice -> once",
    "minimal_at_most": 3,
}


class MergeSums(Pass):
    name = "merge_sums"

    def run(self, rewriter: Rewriter) -> None:
        sums = {}
        for node in rewriter.nodes():
            if node.target is not aten.sum.dim_IntList:
                continue
            key = (node.args[0], node.meta["val"].shape)
            earlier = sums.setdefault(key, node)
            if earlier is not node:
                rewriter.replace(node, earlier, rule="sum(x, d) twice -> once")


MERGE = MergeSums()


def model():
    def program(x, y):
        e = y.exp()
        twice = e.sum(1) * 2 + e.sum(1).cos()
        z = torch.sin(x)
        return twice + z.sum(0) - z.sum(1)

    return program


def inputs():
    return (torch.randn(6, 6), torch.randn(6, 5))


def config():
    return {"custom_passes": {"joint": [f"{__file__}:MERGE"]}, "disable": [CSE]}


CSE = "eliminate_common_subexpressions"
