"""Time-bucket embedding: buckets off by one, logits wrong.

Source: pytorch/pytorch#197895. Culprit: lowering: floor_divide / div(rounding_mode=floor) on
floats.
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(floor|div)"


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
        self.t, self.e = nn.Embedding(64, 16), nn.Linear(6, 16)
        self.b = nn.ModuleList(Block(16, 2) for _ in range(2))
        self.head = nn.Linear(16, 5)

    def forward(self, x, t):
        bucket = (t // 0.1).clamp(0, 63).long()
        y = self.e(x) + self.t(bucket)
        for b in self.b:
            y = b(y)
        return self.head(y.mean(1)).log_softmax(-1)


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randn(2, 8, 6), torch.arange(16.0).reshape(2, 8) / 10
