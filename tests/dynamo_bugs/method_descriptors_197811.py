"""Dynamo: a closure over another method of torch.Tensor uses the old graph.

Issue pytorch/pytorch#197811; fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


def make(op):
    def fn(x, y):
        return op(x, y)  # the line

    return fn


class Ops:
    op = make(torch.Tensor.__add__)


def model():
    return lambda x: Ops.op(x, x + 1)


def warmups():
    return [inputs()]


def between(m):
    Ops.op = staticmethod(make(torch.Tensor.__mul__))


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
