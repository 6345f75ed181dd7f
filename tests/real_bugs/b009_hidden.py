"""Uint8 image statistic fed to an MLP is wrong.

Source: pytorch/pytorch#187018. Culprit: lowering/cpp codegen: abs on uint8 (std::abs promotes to
int).
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*abs"


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
        self.i = nn.Linear(24, 16)
        self.f = ResMLP(16, 6)
        self.o = nn.Linear(16, 4)

    def forward(self, img):
        neg = -img.abs()
        stat = torch.cat([neg, neg], 1).sum(1, keepdim=True).float() / 4096.0
        x = self.i(img.float() / 255.0 - 0.5)
        return self.o(self.f(x * (1.0 + stat))), stat


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randint(100, 256, (3, 24), dtype=torch.uint8),)
