"""Contrastive model with a batch shuffle: compile fails.

Source: pytorch/pytorch#188223. Culprit: joint_graph_passes: randperm_index pattern
(pattern_matcher, unused input).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CULPRIT = r"joint/.*randperm"


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.h, self.dh = h, d // h

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, self.dh).transpose(1, 2)
        k = self.k(x).view(b, t, self.h, self.dh).transpose(1, 2)
        v = self.v(x).view(b, t, self.h, self.dh).transpose(1, 2)
        w = (q @ k.transpose(-2, -1) / self.dh**0.5 + 0.0 * x.mean()).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.a = Attn(d, h)
        self.m = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.m(self.n2(x))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.b = nn.Linear(6, 16), nn.ModuleList(Block(16, 2) for _ in range(3))
        self.p = nn.Linear(16, 8)

    def forward(self, x):
        y = self.e(x)
        for b in self.b:
            y = b(y)
        z = F.normalize(self.p(y.mean(1)), dim=-1)
        neg = z[torch.randperm(8)]
        return (z @ z.t()).logsumexp(-1) - (z * neg).sum(-1)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(8, 4, 6),)
