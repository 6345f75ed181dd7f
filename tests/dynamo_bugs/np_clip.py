"""Dynamo: np.clip wraps bounds that the dtype cannot hold.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

import numpy as np
import torch


def model():
    return lambda x: torch.from_numpy(np.clip(x.numpy().astype(np.uint8), -1, 300))  # the line


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
