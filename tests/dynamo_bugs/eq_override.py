"""Dynamo: a set of objects with `__eq__` and `__hash__` of their own counts them apart.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

import torch


class C:
    def __eq__(self, o):
        return True

    def __hash__(self):
        return 1

    def __bool__(self):
        return False


def model():
    def f(x):
        a, b = C(), C()
        return x * (len({a, b}) * 10 + (a in [b]) + (not a))  # the line

    return f


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
