"""Int8 score matrix in a quantised attention does not wrap: wrong logits.

Source: pytorch/pytorch#191308. Culprit: lowering: bmm of int8 with a size-1 dim (done as mul +
sum, sum promotes to int64).
"""

import torch
import torch.nn as nn

CULPRIT = r"lowered/.*(bmm|matmul|mm)"


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
        self.e = nn.Linear(6, 16)
        self.b0, self.b1 = Block(16, 2), Block(16, 2)
        self.o = nn.Linear(16, 4)

    def forward(self, x, q8, k8):
        y = self.b0(self.e(x))
        s = torch.matmul(q8, k8.transpose(1, 2)).float() / 64.0
        y = s.softmax(-1) @ y
        return self.o(self.b1(y))


def model():
    torch.manual_seed(0)
    return M().eval()


def inputs():
    torch.manual_seed(1)
    return (
        torch.randn(2, 1, 6).expand(2, 3, 6).contiguous()
        * torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1),
        torch.randint(-90, 90, (2, 1, 2), dtype=torch.int8),
        torch.randint(-90, 90, (2, 3, 2), dtype=torch.int8),
    )
