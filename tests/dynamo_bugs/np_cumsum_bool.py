"""Dynamo: np.cumsum of bools raises.

Fails with torch 2.13 and the backend `eager`.
cause: exceptions
"""

import numpy as np
import torch


def model():
    return lambda x: torch.from_numpy(np.cumsum(x.numpy() > 1))  # the line


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
