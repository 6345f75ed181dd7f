"""Slice_scatter result returned as zeros after x.zero_().

Source: pytorch/pytorch#198094. Culprit: post_grad_passes: reinplace (slice_scatter into a graph
input overwritten by a later mutation).
"""

import torch
import torch.nn as nn

CULPRIT = r"(forward|backward|joint|post)?.*reinplace"


class M(nn.Module):
    def forward(self, x, src):
        y = torch.slice_scatter(x, src, dim=0, start=1, end=3)
        x.zero_()
        return y


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.arange(24.0).reshape(4, 6), -torch.arange(12.0).reshape(2, 6)
