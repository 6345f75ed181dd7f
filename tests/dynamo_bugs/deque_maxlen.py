"""Dynamo: a deque with `maxlen` forgets the wrong items.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

from collections import deque

import torch

D = deque([0], maxlen=2)


def model():
    def f(x):
        D.append(1)
        D.append(2)
        D.append(3)  # the line
        return x * D[0]

    return f


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
