"""A network quantized by torchao, each layer in another form: integers, fewer bits, and float8."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)


def model() -> nn.Module:
    torch.manual_seed(0)
    sizes = (64, 128, 64, 64, 32)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    net = nn.Sequential(layers[0], nn.ReLU(), *layers[1:]).eval()
    quantize_(net[0], Int8WeightOnlyConfig())
    quantize_(net[2], Int8DynamicActivationInt8WeightConfig())
    quantize_(net[3], IntxWeightOnlyConfig(torch.int4))
    quantize_(net[4], Float8WeightOnlyConfig())
    return net


def inputs() -> tuple[Tensor, ...]:
    torch.manual_seed(1)
    return (torch.randn(4, 64),)
