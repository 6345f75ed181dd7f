"""The programs that `kernels.py` and `models.py` time: small fused ones, and whole models.

Each is a function and its inputs, made for a device, a type and a size. Inputs are drawn with a
fixed seed. `Program.nbytes` is what a perfect kernel reads and writes, for shares of the copy rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Program:
    """Something to compile.

    Attributes:
        name: What it is called in tables.
        run: The function.
        inputs: Its arguments.
        nbytes: Bytes that must be read and written once.
    """

    name: str
    run: Callable[..., Any]
    inputs: tuple[Any, ...]
    nbytes: int


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    """A bias and a GELU behind a linear layer."""
    return F.gelu(x + bias)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm with weight and bias."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def rms_norm_residual(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """RMS norm of a sum, which is returned, too."""
    total = (x + residual).float()
    scale = torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
    return (total * scale).to(x.dtype) * weight, total.to(x.dtype)


def softmax_scale_mask(x: Tensor, mask: Tensor) -> Tensor:
    """The weights of attention: scaled, masked, normalized."""
    return torch.softmax((x * 0.125).masked_fill(mask, float("-inf")), -1)


def swiglu(x: Tensor, y: Tensor) -> Tensor:
    """The gate of a SwiGLU."""
    return F.silu(x) * y


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    """Loss of a classifier, in float32."""
    return F.cross_entropy(x.float(), target)


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One step of Adam, without bias correction."""
    m = m * 0.9 + g * 0.1
    v = v * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-8), m, v


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, halves rotated."""
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


def batch_norm_relu(x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Batch norm in evaluation, and ReLU."""
    return F.relu(F.batch_norm(x, mean, var, weight, bias))


def batch_norm_training(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Batch norm with the statistics of the batch, and ReLU."""
    return F.relu(F.batch_norm(x, None, None, weight, bias, training=True))


def transpose_add(x: Tensor, y: Tensor) -> Tensor:
    """A sum with a transposed matrix."""
    return x + y.t()


def dropout_add(x: Tensor, keep: Tensor, residual: Tensor) -> Tensor:
    """Dropout by a given mask, and a residual."""
    return x * keep * (1 / 0.9) + residual


def small_chain(x: Tensor) -> Tensor:
    """So small that the call is what takes time."""
    return torch.relu(x * 2 + 1).tanh() * 0.5


def group_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Group norm and SiLU, as in diffusion models."""
    return F.silu(F.group_norm(x, 8, weight, bias))


def column_sum(x: Tensor, y: Tensor) -> Tensor:
    """The sum of a product over rows, as of a weight gradient."""
    return (x * y).sum(0)


def log_softmax(x: Tensor) -> Tensor:
    """Log-softmax over rows."""
    return F.log_softmax(x, -1)


def kernels(device: str, dtype: torch.dtype, scale: int) -> list[Program]:
    """Return the small programs.

    Args:
        device: Where the inputs are.
        dtype: Of the floating inputs.
        scale: How many times more rows than a small CPU case (4096 rows make a GPU busy).
    """
    draw = torch.Generator(device).manual_seed(0)

    def make(*size: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.randn(*size, generator=draw, device=device).to(dtype)

    rows, width = 512 * scale, 1024
    x = make(rows, width)
    target = torch.randint(0, 8192, (256 * scale,), generator=draw, device=device)
    mask = make(rows, width) > 1
    image = make(8 * scale, 64, 32, 32)
    single = [make(width) for _ in range(4)]
    channels = [make(64) for _ in range(3)]
    adams = [make(rows, width, dtype=torch.float32) for _ in range(3)]
    variances = adams[0].abs()
    heads = make(4 * scale, 8, 128, 64)
    angles = make(128, 64)
    square = [make(rows if scale == 1 else 8192, rows if scale == 1 else 8192) for _ in range(2)]
    return [
        _program(bias_gelu, x, single[0]),
        _program(layer_norm, x, *single[:2]),
        _program(rms_norm_residual, x, make(rows, width), single[0], writes=2),
        _program(softmax_scale_mask, x, mask),
        _program(log_softmax, x),
        _program(swiglu, x, make(rows, width)),
        _program(cross_entropy, make(256 * scale, 8192), target, writes=0),
        _program(adam, *adams, variances, writes=3),
        _program(rotary, heads, angles.cos(), angles.sin()),
        _program(batch_norm_relu, image, channels[0], channels[1].abs() + 1, *channels[1:]),
        _program(batch_norm_training, image, *channels[:2]),
        _program(group_norm, image, *channels[:2]),
        _program(transpose_add, *square),
        _program(dropout_add, x, mask, make(rows, width)),
        _program(column_sum, x, make(rows, width), writes=0),
        _program(small_chain, make(256)),
    ]


def _program(run: Callable[..., Any], *inputs: Tensor, writes: int = 1) -> Program:
    first = inputs[0]
    total = sum(each.numel() * each.element_size() for each in inputs)
    return Program(run.__name__, run, inputs, total + writes * first.numel() * first.element_size())


class EncoderLayer(nn.Module):
    """A layer of a transformer, norms first."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.qkv(self.first(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.mlp(self.second(x))


class ConvNet(nn.Module):
    """Two blocks of convolution, batch norm and ReLU, with a residual."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in range(4))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)) + x)
        return self.head(x.mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM cell, written out, in a loop."""

    def __init__(self, width: int = 128, steps: int = 8) -> None:
        super().__init__()
        self.gates = nn.Linear(2 * width, 4 * width)
        self.width, self.steps = width, steps

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(x.shape[0], self.width, dtype=x.dtype, device=x.device)
        for step in range(self.steps):
            i, f, g, o = self.gates(torch.cat((x[:, step], h), -1)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h


def mlp(width: int = 256) -> nn.Module:
    """Return a perceptron of three layers."""
    return nn.Sequential(
        nn.Linear(width, 4 * width), nn.GELU(), nn.LayerNorm(4 * width),
        nn.Linear(4 * width, width), nn.SiLU(), nn.Linear(width, 10),
    )  # fmt: skip


MODELS: Sequence[tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = (
    ("encoder_layer", EncoderLayer, (8, 128, 256)),
    ("mlp", mlp, (256, 256)),
    ("convnet", ConvNet, (8, 3, 32, 32)),
    ("lstm_loop", Recurrent, (64, 8, 128)),
)
"""Name, what makes the model, and the size of its input."""
