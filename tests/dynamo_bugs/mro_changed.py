"""Dynamo: a class attribute that hides the one of a base class is not guarded.

Fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


class A:
    k = 2.0


class B(A):
    pass


b = B()


def model():
    return lambda x: x * b.k  # the line


def warmups():
    return [inputs()]


def between(m):
    B.k = 5.0


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
