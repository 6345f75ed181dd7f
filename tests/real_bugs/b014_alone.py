"""Conv + add(alpha=3) frozen: alpha dropped.

Source: no issue is known. Culprit: freezing pass: binary_folding ignores alpha of add/sub.
"""

import torch
import torch.nn as nn

CULPRIT = r"frozen/.*binary_fold"


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.t = nn.Conv2d(4, 8, 3), nn.Parameter(torch.rand(8, 1, 1) + 0.5)

    def forward(self, x):
        return torch.add(self.c(x), self.t, alpha=3.0)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(2, 4, 8, 8),)


def config():
    return {"freezing": True}
