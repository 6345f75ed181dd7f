"""Attention with a permuted key is fused as if it were transposed.

pytorch/pytorch#195320: present in torch 2.13.0 on the CPU.
"""

import torch
from torch import nn

EXPECT = {"pass": "fuse_attention._sfdp_pattern", "at_most": 6}


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
        self.blocks = nn.ModuleList(Block(16) for _ in range(2))
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        x = self.blocks[0](x)
        q = self.q(x).view(2, 4, 4, 4).transpose(1, 2)
        k = self.k(x).view(2, 4, 4, 4).permute(0, 2, 3, 1)
        v = self.v(x).view(2, 4, 4, 4).transpose(1, 2)
        weights = (torch.matmul(q, k) * 0.5).softmax(-1)
        return self.blocks[1](x + torch.matmul(weights, v).transpose(1, 2).reshape(2, 4, 16))


def model():
    torch.manual_seed(0)
    return Model().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(2, 4, 16),)
