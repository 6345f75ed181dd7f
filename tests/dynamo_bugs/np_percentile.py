"""Dynamo: np.percentile of an axis of one dimension gives another shape.

Fails with torch 2.13 and the backend `eager`.
cause: capture
"""

import numpy as np
import torch


def model():
    return lambda x: torch.from_numpy(
        np.asarray(np.percentile(x.numpy(), 40, method="lower"))  # the line
    )


def inputs():
    return (torch.tensor([1.0, 2.0, 3.0]),)
