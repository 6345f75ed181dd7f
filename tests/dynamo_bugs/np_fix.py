"""Dynamo: np.fix rounds to nearest instead of towards zero.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

import numpy as np
import torch


def model():
    return lambda x: torch.from_numpy(np.fix(x.numpy() * 0.6))  # the line


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
