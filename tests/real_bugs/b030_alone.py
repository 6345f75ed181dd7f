"""Clamp(int8, -1000, 1000) is accepted and returns -24 everywhere.

Source: pytorch/pytorch#198071. Culprit: lowering: clamp bound wrapped to the tensor dtype.
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*clamp"


class M(nn.Module):
    def forward(self, x):
        return x.clamp(-1000, 1000)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.tensor([-128, -3, 0, 5, 127] * 4, dtype=torch.int8),)
