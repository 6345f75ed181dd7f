"""Dynamo: an integer division by zero raises, numpy warns.

Fails with torch 2.13 and the backend `eager`.
cause: exceptions
"""

import numpy as np
import torch


def model():
    return lambda x: torch.from_numpy(  # the line
        x.numpy().astype(np.int64) // (x.numpy().astype(np.int64) - 2)
    )


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
