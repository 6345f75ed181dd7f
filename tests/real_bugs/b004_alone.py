"""Permuted K taken for key.transpose(-2,-1): wrong attention output when T == H.

Source: pytorch/pytorch#195320. Culprit: joint_graph_passes: fuse_attention (_sfdp_pattern_2).
"""

import torch
import torch.nn as nn

CULPRIT = r"joint/fuse_attention\._sfdp_pattern_2"


class PermAttn(nn.Module):
    """K is permuted straight to (B, H, D, T)."""

    def __init__(self, d, h):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.h, self.dh = h, d // h

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, self.dh).transpose(1, 2)
        k = self.k(x).view(b, t, self.h, self.dh).permute(0, 2, 3, 1)
        v = self.v(x).view(b, t, self.h, self.dh).transpose(1, 2)
        w = (torch.matmul(q, k) * self.dh**-0.5).softmax(-1)
        return self.o(torch.matmul(w, v).transpose(1, 2).reshape(b, t, -1))


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = PermAttn(16, 4)

    def forward(self, x):
        return self.a(x)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randn(2, 4, 16),)
