"""Models as PT2E quantization writes them, by hand: torch has no quantizer of its own any more."""

import torch
from torch import nn

from ctk.compiler.torch_compat.inductor import onednn

library = onednn.quantized_decomposed()


def requantized(x, scale=0.05, zero=64, low=0, high=127, dtype=torch.uint8):
    """Quantize and dequantize, for the next layer; [0, 127] is `reduce_range`."""
    settings = (scale, zero, low, high, dtype)
    return library.dequantize_per_tensor(library.quantize_per_tensor(x, *settings), *settings)


def requantized_in_each_call(x, high=127):
    """The same with a scale that is chosen for the numbers at hand (dynamic quantization)."""
    scale, zero = library.choose_qparams.tensor(x, 0, high, 1e-5, torch.uint8)
    settings = (scale, zero, 0, high, torch.uint8)
    numbers = library.quantize_per_tensor.tensor(x, *settings)
    return library.dequantize_per_tensor.tensor(numbers, *settings)


class Quantized(nn.Module):
    """A layer whose weight is 8-bit integers, with a scale for each output or (`is_one`) for all.

    Attributes:
        limit: The largest weight.
    """

    def __init__(self, *shape, bias=True, limit=127, is_one=False, **settings):
        super().__init__()
        numbers = torch.randn(shape)
        axes = tuple(range(0 if is_one else 1, len(shape)))
        scale = numbers.abs().amax(axes, keepdim=True) / limit
        weight = (numbers / scale).round().to(torch.int8)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", scale.reshape(-1))
        self.register_buffer("zero", torch.zeros(scale.numel(), dtype=torch.int64))
        self.bias = nn.Parameter(torch.randn(shape[0])) if bias else None
        self.limit, self.is_one, self.settings = limit, is_one, settings

    def numbers(self):
        bounds = (-self.limit, self.limit, torch.int8)
        if self.is_one:
            one = (float(self.scale_of_all), 0)
            return library.dequantize_per_tensor(self.weight, *one, *bounds)
        return library.dequantize_per_channel(self.weight, self.scale, self.zero, 0, *bounds)

    scale_of_all = 0.03125

    def forward(self, x):
        if self.weight.dim() == 2:
            return nn.functional.linear(x, self.numbers(), self.bias)
        return nn.functional.conv2d(x, self.numbers(), self.bias, **self.settings)


class Convnet(nn.Module):
    """Convolutions, one with groups, with a residual, a pool and a head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = Quantized(8, 3, 3, 3, padding=1)
        self.second = Quantized(8, 1, 3, 3, padding=1, groups=8)
        self.third = Quantized(8, 8, 3, 3, stride=2, is_one=True)
        self.head = Quantized(5, 8)

    def forward(self, x):
        y = requantized(self.first(requantized(x)).relu())
        z = requantized(nn.functional.hardtanh(self.second(y), 0.0, 6.0)) + y
        z = nn.functional.silu(self.third(requantized(z)))
        return self.head(requantized(z.mean((2, 3))))


class Gated(nn.Module):
    """A block of a transformer: parallel linears of tokens, a gate, and a residual."""

    def __init__(self, requantize=requantized):
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up = Quantized(32, 16), Quantized(32, 16, bias=False)
        self.down, self.out = Quantized(16, 32), Quantized(16, 16)
        self.requantize = requantize

    def forward(self, x):
        y = self.requantize(x)
        z = self.down(self.requantize(nn.functional.gelu(self.gate(y)) * self.up(y)))
        return x + self.out(self.requantize(z.relu()))
