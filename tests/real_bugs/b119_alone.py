"""Copysign on a transposed input: contiguous strides instead of the input's.

Source: pytorch/pytorch#198364. Culprit: fake/meta strides of copysign are contiguous and Inductor
restrides its output to them (aot_eager runs the real kernel).
"""

import torch
import torch.nn as nn

CULPRIT = r"dispatch/.*copysign"


class M(nn.Module):
    def forward(self, a, b):
        return torch.copysign(a, b)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.rand(6, 5).mT, torch.rand(5, 6) - 0.5
