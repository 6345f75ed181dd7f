"""A pass on the frozen graph loses the biases of oneDNN's products, whose weights are packed."""

import torch
from torch import nn

EXPECT = {"stage": "frozen", "pass": "lose_biases", "minimal": ["linear"]}


def lose_biases(gm):
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.mkldnn._linear_pointwise.default:
            node.update_arg(2, None)


def model():
    sizes = ((8, 16), (16, 16), (16, 4))
    layers = [layer for a, b in sizes for layer in (nn.Linear(a, b), nn.Sigmoid())]
    return nn.Sequential(*layers).eval().requires_grad_(False)


def inputs():
    return (torch.randn(4, 8),)


def config():
    return {"freezing": True, "custom_passes": {"frozen": [f"{__file__}:lose_biases"]}}
