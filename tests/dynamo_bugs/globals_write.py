"""Dynamo: a global written through `globals()` is read as it was before.

Fails with torch 2.13 and the backend `eager`.
cause: resumption
"""

import torch

N = 1


def model():
    def f(x):
        globals()["N"] = 5
        return x * N  # the line

    return f


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
