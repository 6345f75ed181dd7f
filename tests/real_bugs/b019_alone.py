"""Softmax of a constant nan tensor crashes lowering.

Source: pytorch/pytorch#188225. Culprit: lowering: index_propagation (maximum on a sympy nan).
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(softmax|amax|maximum|prepare_softmax)"


class M(nn.Module):
    def forward(self, x):
        t = torch.ones(2, 2)
        t = torch.arccosh(torch.log2(torch.atan2(t, t)))
        return torch.softmax(t, -1) + x


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(2, 2),)
