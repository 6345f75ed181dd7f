"""Dynamo: `__getattr__` of a class replaced after the first call is not guarded.

Fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


class C:
    def __getattr__(self, n):
        return 2.0


c = C()


def model():
    return lambda x: x * c.v  # the line


def warmups():
    return [inputs()]


def between(m):
    C.__getattr__ = lambda self, n: 5.0


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
