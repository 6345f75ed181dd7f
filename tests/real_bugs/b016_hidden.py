"""Training step of an MLP with a gradient quantiser: loss right, every gradient wrong.

Source: pytorch/pytorch#197895. Culprit: backward graph, lowering: floor_divide on floats.
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(floor|div)"
BACKWARD = True


class ResMLP(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.l = nn.ModuleList(nn.Linear(d, d) for _ in range(n))
        self.n = nn.ModuleList(nn.LayerNorm(d) for _ in range(n))

    def forward(self, x):
        for linear, norm in zip(self.l, self.n, strict=True):
            x = x + torch.tanh(linear(norm(x))) * torch.sigmoid(x)
        return x


class GradQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return (g // 0.1) * 0.1


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.o = ResMLP(8, 5), nn.Linear(8, 4)

    def forward(self, x, w):
        return (GradQuant.apply(self.o(self.f(x))) * w).sum()


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randn(3, 8), torch.tensor([1.0, 0.5, 6.0, 1.0])
