"""Transformer encoder, third layer.

Permuted K taken for key.transpose(-2,-1): wrong attention output when T == H.

Source: pytorch/pytorch#195320. Culprit: joint_graph_passes: fuse_attention (_sfdp_pattern_2).
"""

import torch
import torch.nn as nn

CULPRIT = r"joint/fuse_attention\._sfdp_pattern_2"


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.h, self.dh = h, d // h

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.h, self.dh).transpose(1, 2)
        k = self.k(x).view(b, t, self.h, self.dh).transpose(1, 2)
        v = self.v(x).view(b, t, self.h, self.dh).transpose(1, 2)
        w = (q @ k.transpose(-2, -1) / self.dh**0.5 + 0.0 * x.mean()).softmax(-1)
        return self.o((w @ v).transpose(1, 2).reshape(b, t, -1))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.a = Attn(d, h)
        self.m = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.m(self.n2(x))


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
        self.e, self.p = nn.Embedding(40, 16), nn.Parameter(torch.randn(4, 16))
        self.b0, self.b1, self.b3 = Block(16, 2), Block(16, 2), Block(16, 2)
        self.n, self.a = nn.LayerNorm(16), PermAttn(16, 4)
        self.head = nn.Linear(16, 40)

    def forward(self, ids):
        x = self.b1(self.b0(self.e(ids) + self.p))
        x = x + self.a(self.n(x))
        return self.head(self.b3(x))


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (torch.randint(0, 40, (2, 4)),)
