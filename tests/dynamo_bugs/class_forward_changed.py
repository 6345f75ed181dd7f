"""Dynamo: `forward` of a submodule's class replaced after the first call is not guarded.

Fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


class L(torch.nn.Module):
    def forward(self, x):
        return x + 1  # the line


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = L()

    def forward(self, x):
        return self.l(x)


def model():
    return M()


def warmups():
    return [inputs()]


def between(m):
    L.forward = lambda self, x: x * 7


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
