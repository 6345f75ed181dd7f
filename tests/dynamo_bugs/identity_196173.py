"""Dynamo: control flow on which of two equal objects is held uses an old graph.

Issue pytorch/pytorch#196173; fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


class Box:
    def __init__(self, v):
        self.v = v


A, B = Box(1.0), Box(1.0)


class H:
    cur = A


def model():
    def f(x):
        if H.cur is A:  # the line
            H.cur = B
            return x * 2
        H.cur = A
        return x * 3

    return f


def warmups():
    return [inputs(), inputs()]


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
