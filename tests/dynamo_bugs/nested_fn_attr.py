"""Dynamo: an attribute that a function keeps on itself is lost.

Fails with torch 2.13 and the backend `eager`.
cause: resumption
"""

import torch


def g(x):
    g.calls = getattr(g, "calls", 0) + 1  # the line
    return x * g.calls


def model():
    return lambda x: g(x) + g(x)


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
