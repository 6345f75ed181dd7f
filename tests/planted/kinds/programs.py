"""A program for each kind: what `faults.py` and the patched parts of torch get wrong."""

import torch
from torch import nn


class Block(nn.Module):
    """What each kind needs, between layers that nobody gets wrong."""

    def __init__(self, part):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.part = part

    def forward(self, x):
        y = self.first(x).relu()
        results = self.part(y)
        last = self.second(y).sin()
        return (*results, last)


def product(y):
    return (torch.mul(y, y.cos()),)


def dropped(y):
    ones = torch.ones_like(y)
    kept, lost = torch.bernoulli(ones, 0.5), torch.bernoulli(ones, 0.25)
    return y + kept, y - lost


def copied(y):
    z = y.exp()
    return z, torch.clone(z)


def weighted(y):
    return (torch.softmax(y * 100, -1),)


def _model(part):
    def model():
        torch.manual_seed(0)
        return Block(part).eval().requires_grad_(False)

    return model


hang = grow = _model(product)
draw = _model(dropped)
share = _model(copied)
overflow = _model(weighted)


def inputs():
    torch.manual_seed(1)
    return (torch.randn(4, 8) * 3,)
