"""Frozen residual convnet with one sub(alpha=2) after a conv: wrong logits.

Source: no issue is known. Culprit: freezing pass: binary_folding ignores alpha of add/sub.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CULPRIT = r"frozen/.*binary_fold"


class ConvBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.b1, self.b2 = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.s = nn.Conv2d(i, o, 1)

    def forward(self, x):
        y = torch.relu(self.b1(self.c1(x)))
        y = self.b2(self.c2(y))
        return torch.relu(y + self.s(x))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.ModuleList([ConvBlock(3, 8), ConvBlock(8, 8), ConvBlock(8, 8), ConvBlock(8, 8)])
        self.c, self.t = nn.Conv2d(8, 8, 3, padding=1), nn.Parameter(torch.rand(8, 1, 1) + 0.5)
        self.o = nn.Linear(8, 4)

    def forward(self, x):
        x = self.b[1](self.b[0](x))
        x = torch.sub(self.c(x), self.t, alpha=2.0).tanh()
        x = self.b[3](F.avg_pool2d(self.b[2](x), 2))
        return self.o(x.mean((2, 3)))


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(2, 3, 8, 8),)


def config():
    return {"freezing": True}
