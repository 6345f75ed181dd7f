"""Classifier that forgets the sigmoid: eager raises, compiled returns a loss.

Source: pytorch/pytorch#197554. Culprit: decomposition: binary_cross_entropy (range not checked).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CULPRIT = r"dispatch/decompose.*binary_cross_entropy"


class ResMLP(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.l = nn.ModuleList(nn.Linear(d, d) for _ in range(n))
        self.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(n))

    def forward(self, x):
        for linear, norm in zip(self.l, self.n, strict=True):
            x = x + torch.tanh(linear(norm(x))) * torch.sigmoid(x)
        return x


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.o = ResMLP(8, 8), nn.Linear(8, 1)

    def forward(self, x, t):
        p = self.o(self.f(x)).exp().squeeze(-1)
        return F.binary_cross_entropy(p, t), p.log().mean()


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randn(6, 8), torch.ones(6)
