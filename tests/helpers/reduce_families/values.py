"""Graphs whose failure needs a shape or a value, in the middle of other ops."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule

from tests.helpers.reduce_families.planted import traced
from tests.helpers.reduce_families.structures import UNARY

Found = tuple[GraphModule, tuple[object, ...]]


def tall(size: int, seed: int) -> Found:
    """Return a graph over 64x96 values in which a `softmax` is hidden."""

    def run(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        for number in range(size // 2):
            x = UNARY[(number + seed) % 4](x)
        y = torch.softmax(torch.add(x, b), -1)
        z = torch.matmul(y, w)
        for number in range(size // 2):
            z = UNARY[(number + seed) % 4](z)
        return z, torch.sum(y, 0)

    generator = torch.Generator().manual_seed(seed)
    inputs = tuple(torch.randn(shape, generator=generator) for shape in ((64, 96), (96, 32), (96,)))
    return traced(run, *inputs), inputs


def element(size: int, seed: int, value: float) -> Found:
    """Return a graph that reads a 12x12 to 19x19 tensor; one element has a value of its own.

    `softmax` reads it as it is; other nodes stand beside and behind.
    """

    def run(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        for number in range(size // 2):
            y = UNARY[number % 4](y)
        z = torch.softmax(torch.abs(x), -1) * y
        for number in range(size // 2):
            z = UNARY[number % 4](z)
        return z, torch.sum(y, 0)

    generator = torch.Generator().manual_seed(seed)
    side = 12 + (2 * seed + size) % 8
    x, y = (torch.randn(side, side, generator=generator) for _ in range(2))
    at = torch.randint(side, (2,), generator=generator).tolist()
    x[at[0], at[1]] = value
    return traced(run, x, y), (x, y)


def convolution(size: int, seed: int, *, stride: int) -> Found:
    """Return a convnet at a 224x224 image with one `conv2d` and `max_pool2d` and linear layers.

    Args:
        size: About as many nodes.
        seed: Of the values, and of the number of channels.
        stride: Of the convolution.
    """
    channels = 8 + 4 * (seed % 3)

    def run(image: Tensor, w: Tensor, b: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        x = torch.mul(image, scale)
        for number in range(size // 2):
            x = UNARY[number % 4](x)
        x = F.conv2d(x, w, b, stride, 3)
        x = F.max_pool2d(torch.tanh(x), 2)
        pooled = torch.mean(x, (2, 3))
        for number in range(size // 2):
            pooled = UNARY[number % 4](pooled)
        return pooled, torch.sum(x)

    generator = torch.Generator().manual_seed(seed)
    shapes = ((2, 3, 224, 224), (channels, 3, 7, 7), (channels,), (1, 3, 1, 1))
    inputs = tuple(torch.randn(s, generator=generator) / math.sqrt(math.prod(s)) for s in shapes)
    return traced(run, *inputs), inputs
