"""Dynamo: -0.0 passes the guard of 0.0.

Fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


def model():
    def f(x, n):
        return torch.copysign(x, torch.tensor(n))  # the line

    return f


def warmups():
    return [(torch.ones(2), 0.0)]


def inputs():
    return (torch.ones(2), -0.0)
