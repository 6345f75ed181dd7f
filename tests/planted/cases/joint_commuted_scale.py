"""A joint pass folds a scale into `add`, but scales the wrong operand where terms are swapped."""

import torch
from torch import nn

aten = torch.ops.aten
EXPECT = {
    "stage": "joint",
    "pass": "fold_scale",
    "rewrites_in_pass": 4,
    "index": 3,
    "minimal_at_most": 2,
}


def fold_scale(graph):
    for node in list(graph.nodes):
        if node.target is not aten.add.Tensor or node.kwargs:
            continue
        scaled = [a for a in node.args if getattr(a, "target", None) is aten.mul.Tensor]
        if not scaled or not isinstance(scaled[0].args[1], float):
            continue
        value, scale = scaled[0].args
        args = tuple(value if a is scaled[0] else a for a in node.args)
        with graph.inserting_before(node):
            fused = graph.call_function(aten.add.Tensor, args, {"alpha": scale})
        node.replace_all_uses_with(fused)
        graph.erase_node(node)
        graph.erase_node(scaled[0])


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            y = torch.tanh(layer(x))
            x = 0.5 * y + x if i == 2 else x + 0.5 * y
        return x


def model():
    return Residual().eval()


def inputs():
    return (torch.randn(4, 8),)


def config():
    return {"custom_passes": {"joint": [f"{__file__}:fold_scale"]}}
