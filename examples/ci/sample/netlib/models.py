"""Small models."""

import torch
from torch import nn


class Residual(nn.Module):
    """A layer with a scaled residual branch, on either side of the sum."""

    def __init__(self, width: int, *, swapped: bool = False) -> None:
        super().__init__()
        self.inner, self.swapped = nn.Linear(width, width), swapped

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.swapped:
            return 0.5 * self.inner(x) + x
        return x + 0.5 * self.inner(x)


class Gated(nn.Module):
    """A gated feed-forward layer, as in Llama."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.gate(x)) * self.up(x)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.qkv = heads, nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(x).unflatten(-1, (3, self.heads, -1)).transpose(1, 3)
        q, k, v = parts.unbind(2)
        return nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def classifier(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 3))


def normalized(width: int = 8) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4), nn.BatchNorm1d(4), nn.ReLU())
