"""A post_grad pass drops the subtraction of a mean, taking it for the subtraction of zero."""

import torch
from torch import nn

aten = torch.ops.aten
EXPECT = {
    "stage": "forward",
    "pass": "drop_zero_subtraction",
    "rewrites_in_pass": 1,
    "index": 1,
    "minimal_at_most": 2,
}


def drop_zero_subtraction(gm):
    """The test for zero looks at the shape of the operand instead of at its value."""
    for node in list(gm.graph.nodes):
        is_subtraction = node.target is aten.sub.Tensor and hasattr(node.args[1], "meta")
        if is_subtraction and node.args[1].meta["val"].shape[-1] == 1:
            node.replace_all_uses_with(node.args[0])
            gm.graph.erase_node(node)


class Normalize(nn.Module):
    def forward(self, x, y):
        x = torch.tanh(x) - torch.sigmoid(y)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.var(-1, keepdim=True) + 1e-5).sqrt()


def model():
    return Normalize()


def inputs():
    return (torch.randn(4, 16), torch.randn(4, 16))


def config():
    return {"custom_passes": {"forward": [f"{__file__}:drop_zero_subtraction"]}}
