"""Dynamo: a generator that is half consumed is another object afterwards.

Fails with torch 2.13 and the backend `eager`.
cause: side_effects
"""

import torch


def gen(x):
    for i in range(3):  # the line
        yield x + i


G = []


def model():
    def f(x):
        g = gen(x)
        a = next(g)
        G.append(g)
        return a

    return f


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
