"""Gate built from constants inside an MLP: compile fails.

Source: pytorch/pytorch#188225. Culprit: lowering: index_propagation (maximum on a sympy nan).
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(softmax|amax|maximum|prepare_softmax)"


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
        self.f, self.g = ResMLP(8, 5), ResMLP(8, 4)

    def forward(self, x):
        t = torch.ones(3, 2)
        gate = torch.softmax(torch.arccosh(torch.log2(torch.atan2(t, t))), -1)
        x = self.f(x)
        x = x * torch.nan_to_num(gate, nan=0.5).sum(-1, keepdim=True)
        return self.g(x).softmax(-1)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(3, 8),)
