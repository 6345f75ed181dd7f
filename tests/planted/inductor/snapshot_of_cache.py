"""A snapshot of a cache comes back zeroed: reinplacing writes it into a buffer that is cleared.

pytorch/pytorch#198094: present in torch 2.13.0 on the CPU.
"""

import torch
from torch import nn

EXPECT = {"pass": "reinplace_inplaceable_ops", "at_most": 2}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        return x + self.mlp(self.norm(x)).tanh() * x.mean(-1, keepdim=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(8) for _ in range(3))
        self.key = nn.Linear(8, 8)

    def forward(self, x, cache):
        x = self.blocks[0](x)
        kept = torch.slice_scatter(cache, self.key(x).sin(), dim=1, start=1, end=4)
        cache.zero_()
        return self.blocks[2](self.blocks[1](x) + kept[:, 1:4].sigmoid()), kept


def model():
    torch.manual_seed(0)
    return Model().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randn(2, 3, 8), torch.randn(2, 6, 8)
