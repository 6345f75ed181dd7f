"""1.0 // 0.1 is 10 instead of 9.

Source: pytorch/pytorch#197895. Culprit: lowering: floor_divide / div(rounding_mode=floor) on
floats.
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(floor|div)"


class M(nn.Module):
    def forward(self, a, b):
        return a // b


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.tensor([1.0, 0.5, 6.0, 1.0]), torch.tensor([0.1, 0.1, 0.2, 1 / 3])
