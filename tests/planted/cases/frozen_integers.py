"""A pass on the frozen graph reads integers of oneDNN's products with another zero point."""

import torch
from torch import nn

from tests.helpers.quantized_programs import Gated

EXPECT = {"stage": "frozen", "pass": "shift_zero_points", "minimal_at_most": 4}


def shift_zero_points(gm):
    for node in list(gm.graph.nodes):
        if node.target is torch.ops.onednn.qlinear_pointwise.default:
            node.update_arg(2, node.args[2] + 20)


def model():
    return nn.Sequential(Gated(), nn.Tanh()).requires_grad_(False)


def inputs():
    return (torch.randn(2, 3, 16),)


def config():
    return {"freezing": True, "custom_passes": {"frozen": [f"{__file__}:shift_zero_points"]}}
