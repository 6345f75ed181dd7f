"""Dynamo: a global that hides a builtin after the first call is not guarded.

Fails with torch 2.13 and the backend `eager`.
cause: guards
"""

import torch


def model():
    return lambda x: x * len([1, 2])  # the line


def warmups():
    return [inputs()]


def between(m):
    globals()["len"] = lambda items: 9


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
