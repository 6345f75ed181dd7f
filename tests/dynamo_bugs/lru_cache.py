"""Dynamo: `functools.lru_cache` is ignored: the function runs at each call.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

import functools

import torch

CALLS = []


@functools.lru_cache
def scale(n):
    CALLS.append(n)  # the line
    return float(len(CALLS))


def model():
    return lambda x: x * scale(2) + scale(2)


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
