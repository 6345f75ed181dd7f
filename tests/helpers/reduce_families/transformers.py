"""Transformers with two culprits, one feeding the other, whose values have other shapes."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule

from tests.helpers.reduce_families.planted import traced

BATCH, TOKENS, HEADS, WIDTH = 2, 6, 4, 32
NODES_A_LAYER = 24
NAMES = ("norm", "q", "k", "v", "o", "norm2", "up", "down")


def transformer(layers: int, seed: int) -> tuple[GraphModule, tuple[object, ...]]:
    """Return an encoder; `relu` acts on scores in an early layer, `hardtanh` in a late MLP.

    The scores are (2, 4, 6, 6), the values in the MLP (2, 6, 64).
    """
    generator = torch.Generator().manual_seed(seed)
    first = int(torch.randint(0, max(1, layers // 6), (), generator=generator))
    last = layers - 1 - int(torch.randint(0, max(1, layers // 6), (), generator=generator))
    x = torch.randn(BATCH, TOKENS, WIDTH, generator=generator)
    weights = [_weight(name, generator) for _ in range(layers) for name in NAMES]

    def run(x: Tensor, *flat: Tensor) -> tuple[Tensor, Tensor]:
        for index in range(layers):
            group = flat[index * len(NAMES) : (index + 1) * len(NAMES)]
            w = dict(zip(NAMES, group, strict=True))
            x = _attention(x, w, is_guilty=index == first)
            x = _mlp(x, w, is_guilty=index == last)
        return x, x.mean()

    return traced(run, x, *weights), (x, *weights)


def _weight(name: str, generator: torch.Generator) -> Tensor:
    if name.startswith("norm"):
        return torch.rand(WIDTH, generator=generator) + 0.5
    shape = {"up": (2 * WIDTH, WIDTH), "down": (WIDTH, 2 * WIDTH)}.get(name, (WIDTH, WIDTH))
    return torch.randn(shape, generator=generator) * shape[1] ** -0.5


def _attention(x: Tensor, w: Mapping[str, Tensor], *, is_guilty: bool) -> Tensor:
    y = F.layer_norm(x, (WIDTH,), w["norm"])
    q, k, v = (
        F.linear(y, w[name]).view(BATCH, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2)
        for name in ("q", "k", "v")
    )
    scores = torch.matmul(q, k.transpose(-2, -1)) / (WIDTH // HEADS) ** 0.5
    scores = torch.relu(scores) if is_guilty else scores
    mixed = torch.matmul(torch.softmax(scores, -1), v).transpose(1, 2)
    return x + F.linear(mixed.reshape(BATCH, TOKENS, WIDTH), w["o"])


def _mlp(x: Tensor, w: Mapping[str, Tensor], *, is_guilty: bool) -> Tensor:
    y = F.gelu(F.linear(F.layer_norm(x, (WIDTH,), w["norm2"]), w["up"]))
    y = F.hardtanh(y) if is_guilty else y
    return x + F.linear(y, w["down"])
