"""A pass on the joint graph takes the square root of a difference without its guard: NaN."""

import torch
from torch import nn

aten = torch.ops.aten
EXPECT = {
    "stage": "joint",
    "pass": "drop_guard",
    "kind": "nan",
    "minimal_at_most": 2,
}


def drop_guard(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.clamp.default:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x):
        hidden = self.layer(x)
        return hidden.clamp(min=0.0).sqrt().tanh() + 1


def model():
    return Model().eval()


def inputs():
    return (torch.randn(3, 4),)


def config():
    return {"custom_passes": {"joint": [f"{__file__}:drop_guard"]}}
