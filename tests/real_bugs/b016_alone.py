"""Gradient quantiser: forward right, gradients off by one step.

Source: pytorch/pytorch#197895. Culprit: backward graph, lowering: floor_divide on floats.
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(floor|div)"
BACKWARD = True


class GradQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return (g // 0.1) * 0.1


class M(nn.Module):
    def forward(self, x, w):
        return (GradQuant.apply(x) * w).sum()


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randn(4, requires_grad=True), torch.tensor([1.0, 0.5, 6.0, 1.0])
