"""A small ShuffleNet of torchvision with random weights, as a program for `ctk check`."""

import torch
from torch import Tensor, nn
from torchvision.models import ShuffleNetV2


def model() -> nn.Module:
    torch.manual_seed(0)
    return ShuffleNetV2([1, 1, 1], [8, 16, 32, 64, 64], num_classes=10).eval()


def inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(2, 3, 32, 32),)
