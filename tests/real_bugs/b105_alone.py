"""Np.fix rounds to nearest instead of towards zero.

Source: pytorch/pytorch#198052. Culprit: Dynamo numpy interop: torch._numpy.fix is torch.round,
clip wraps out-of-range Python bounds.
"""

import numpy as np
import torch
import torch.nn as nn

CULPRIT = r"dynamo/capture"


class M(nn.Module):
    def forward(self, x):
        whole = np.fix(x.numpy() * 2.0)
        return torch.from_numpy(whole) + x


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.tensor([0.3, 0.8, -0.8, 1.4, -1.9]),)
