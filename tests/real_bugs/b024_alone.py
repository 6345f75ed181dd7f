"""Binary_cross_entropy with input > 1 is accepted.

Source: pytorch/pytorch#197554. Culprit: decomposition: binary_cross_entropy (range not checked).
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

CULPRIT = r"dispatch/decompose.*binary_cross_entropy"


class M(nn.Module):
    def forward(self, x, t):
        return F.binary_cross_entropy(x, t)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.tensor([1.5, 0.2]), torch.tensor([1.0, 0.0])
