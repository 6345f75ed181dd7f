"""A pass on the forward graph wraps indices into their range: what eager refuses is accepted."""

import torch
from torch import nn

aten = torch.ops.aten
EXPECT = {
    "stage": "forward",
    "pass": "wrap_indices",
    "kind": "missing-error",
    "exception": "IndexError",
    "minimal": ["embedding"],
}


def wrap_indices(gm):
    for node in list(gm.graph.nodes):
        if node.target is aten.embedding.default:
            table, index = node.args[:2]
            with gm.graph.inserting_before(node):
                wrapped = gm.graph.call_function(aten.remainder.Scalar, (index, 8))
            node.args = (table, wrapped)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.layer = nn.Linear(4, 4)

    def forward(self, index):
        return self.layer(self.table(index * 2)).relu().sum(-1)


def model():
    return Model().eval()


def inputs():
    return (torch.tensor([1, 2, 5]),)


def config():
    return {"custom_passes": {"forward": [f"{__file__}:wrap_indices"]}}
