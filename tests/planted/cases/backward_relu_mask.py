"""A pass on the backward graph replaces the mask of relu's gradient by the gradient itself."""

import torch
from torch import nn

aten = torch.ops.aten
BACKWARD = True
EXPECT = {
    "stage": "backward",
    "pass": "skip_mask",
    "rewrites_in_pass": 2,
    "minimal": ["relu"],
}


def skip_mask(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.threshold_backward.default:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


def model():
    sizes = ((8, 16), (16, 16), (16, 4))
    layers = [layer for a, b in sizes for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def inputs():
    return (torch.randn(4, 8),)


def config():
    return {"custom_passes": {"backward": [f"{__file__}:skip_mask"]}}
