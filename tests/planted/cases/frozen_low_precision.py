"""A pass on frozen graphs rounds constants through bfloat16 and back."""

import torch
from torch import nn

EXPECT = {"stage": "frozen", "pass": "shrink_constants", "minimal_at_most": 1}


def shrink_constants(gm):
    for node in list(gm.graph.nodes):
        if node.op != "get_attr":
            continue
        value = getattr(gm, node.target)
        if value.dim() != 2:
            continue
        with gm.graph.inserting_after(node):
            rounded = gm.graph.call_function(torch.ops.aten.mul.Tensor, (node, 1.01))
        node.replace_all_uses_with(rounded, lambda user, keep=rounded: user is not keep)


def model():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).eval().requires_grad_(False)


def inputs():
    return (torch.randn(4, 8),)


def config():
    return {"freezing": True, "custom_passes": {"frozen": [f"{__file__}:shrink_constants"]}}
