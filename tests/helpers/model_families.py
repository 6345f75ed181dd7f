"""Five families of models whose sizes vary: encoder, decoder, convnet, recurrent, mixture."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Encoder(nn.Module):
    """A transformer encoder with attention written out and a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        q, k, v = (
            each.unflatten(-1, (4, 4)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-2, -1) / 2.0
        scores = scores.masked_fill(is_padding[:, None, None, :], -1e9)
        x = self.norm(x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))
        return x + self.mlp(x)


class Decoder(nn.Module):
    """One step of a decoder whose keys and values grow."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        return self.out(F.scaled_dot_product_attention(q, keys, values)), keys, values


class Convnet(nn.Module):
    """Convolutions with batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


class Recurrent(nn.Module):
    """An LSTM cell in a loop over time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden, state = x.new_zeros(x.shape[0], 8), x.new_zeros(x.shape[0], 8)
        outputs: list[Tensor] = []
        for at in range(4):
            hidden, state = self.cell(x[:, at], (hidden, state))
            outputs.append(hidden)
        return torch.stack(outputs, 1)


class Mixture(nn.Module):
    """Experts that get the rows which a router gives them: as many as the data say."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 2)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.router(x).argmax(-1)
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            (rows,) = torch.where(chosen == index)
            result = result.index_add(0, rows, torch.relu(expert(x[rows])))
        return result


def _encoder_inputs(batch: int) -> tuple[Tensor, ...]:
    is_padding = torch.arange(6)[None, :] >= torch.randint(1, 7, (batch, 1))
    return torch.randn(batch, 6, 16), is_padding


def _decoder_inputs(batch: int) -> tuple[Tensor, ...]:
    length = batch + 30
    return (
        torch.randn(batch, 1, 16),
        torch.randn(batch, length, 16),
        torch.randn(batch, length, 16),
    )


Dims = Sequence[list[int]]
"""Which dimensions of each input are dynamic."""

FAMILIES: dict[str, tuple[type[nn.Module], Callable[[int], tuple[Tensor, ...]], Dims]] = {
    "encoder": (Encoder, _encoder_inputs, ([0], [0])),
    "decoder": (Decoder, _decoder_inputs, ([0], [0, 1], [0, 1])),
    "convnet": (Convnet, lambda batch: (torch.randn(batch, 3, 8, 8),), ([0],)),
    "recurrent": (Recurrent, lambda batch: (torch.randn(batch, 4, 8),), ([0],)),
    "mixture": (Mixture, lambda batch: (torch.randn(batch, 8),), ([0],)),
}


def dynamic_shapes(family: str) -> tuple[dict[int, object], ...]:
    """Return the dynamic dimensions of a family's inputs, as `torch.export` takes them."""
    return tuple(dict.fromkeys(dims, torch.export.Dim.AUTO) for dims in FAMILIES[family][2])
