"""Dynamo: the text of a KeyError has no quotes.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

import torch


def model():
    def f(x):
        try:
            try:
                raise ValueError("a")
            except ValueError as e:
                raise KeyError("b") from e
        except KeyError as k:
            return x * len(str(k.__cause__)), str(k)  # the line

    return f


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
