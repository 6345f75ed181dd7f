"""A pre_grad pass uses the tanh approximation for every gelu: right only to 1e-3."""

import torch
from torch import nn

EXPECT = {
    "stage": "pre_grad",
    "pass": "approximate_gelu",
    "rewrites_in_pass": 3,
    "minimal": ["gelu"],
}


def approximate_gelu(gm):
    for node in gm.graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "gelu":
            node.kwargs = {**node.kwargs, "approximate": "tanh"}


def model():
    layers = [layer for _ in range(3) for layer in (nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16))]
    return nn.Sequential(*layers).eval()


def inputs():
    return (torch.randn(4, 16),)


def config():
    return {"custom_passes": {"pre_grad": [f"{__file__}:approximate_gelu"]}}
