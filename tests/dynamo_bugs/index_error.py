"""Dynamo: an IndexError that the program catches is raised.

Fails with torch 2.13 and the backend `eager`.
cause: exceptions
"""

import torch


def model():
    def f(x):
        try:
            return x[5]  # the line
        except IndexError:
            return x * 2

    return f


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
