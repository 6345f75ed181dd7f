"""A small ResNet of timm with random weights, as a program for `ctk check`."""

import timm
import torch
from torch import Tensor, nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("test_resnet", pretrained=False, num_classes=10).eval()


def inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(2, 3, 64, 64),)
