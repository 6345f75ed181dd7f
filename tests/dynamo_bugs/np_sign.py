"""Dynamo: np.sign of complex numbers raises.

Fails with torch 2.13 and the backend `eager`.
cause: exceptions
"""

import numpy as np
import torch


def model():
    return lambda x: torch.from_numpy(np.sign(x.numpy().astype(np.complex64) - 2j))  # the line


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
