"""Decoder with a KV cache: snapshot of the cache comes back zeroed.

Source: pytorch/pytorch#198094. Culprit: post_grad_passes: reinplace (slice_scatter into a graph
input overwritten by a later mutation).
"""

import torch
import torch.nn as nn

CULPRIT = r"(forward|backward|joint|post)?.*reinplace"


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


class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(50, 16)
        self.b = nn.ModuleList(Block(16, 2) for _ in range(2))
        self.kv = nn.Linear(16, 16)
        self.head = nn.Linear(16, 50)

    def forward(self, ids, cache):
        x = self.e(ids)
        x = self.b[0](x)
        snap = torch.slice_scatter(cache, self.kv(x).tanh(), dim=1, start=2, end=6)
        cache.zero_()
        x = self.b[1](x + snap[:, 2:6].relu())
        return self.head(x).log_softmax(-1), snap


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randint(0, 50, (2, 4)), torch.randn(2, 8, 16)
