"""Indexing with a random permutation crashes the pattern matcher.

pytorch/pytorch#188223: present in torch 2.13.0 on the CPU.
"""

import torch
from torch import nn

EXPECT = {"pass": "randperm_index", "kind": "compile-error", "at_most": 2}


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

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return (x * x[torch.randperm(6)]).sum(-1)


def model():
    torch.manual_seed(0)
    return Model().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(6, 8),)
