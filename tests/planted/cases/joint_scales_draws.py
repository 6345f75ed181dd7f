"""A pass on the joint graph keeps other elements of a dropout than the program asks for."""

import torch
from torch import nn

aten = torch.ops.aten
EXPECT = {
    "stage": "joint",
    "pass": "drop_more",
    "minimal_at_most": 3,
}


def drop_more(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.bernoulli.p:
            node.args = (node.args[0], 0.25, *node.args[2:])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        mask = torch.bernoulli(torch.ones_like(x), 0.75)
        return (self.layer(x).relu() * mask).sum(-1)


def model():
    return Model().eval()


def inputs():
    return (torch.randn(16, 8),)


def config():
    return {"custom_passes": {"joint": [f"{__file__}:drop_more"]}}
