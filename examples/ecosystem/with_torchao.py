"""A network quantized by torchao: int8 weights, and in the second layer int8 activations."""

import torch
from torch import Tensor, nn
from torchao.quantization import (
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)


def model() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    quantize_(net[0], Int8WeightOnlyConfig())
    quantize_(net[2], Int8DynamicActivationInt8WeightConfig())
    return net


def inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(4, 64),)
