"""Higher-order operators: cond, while_loop, scan, map, flex attention, checkpoints, regions."""

from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops import associative_scan, scan
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from tests.helpers.healthy.base import Call, Healthy


def two_branches() -> Call:
    def run(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda z: z.sin() * 2, lambda z: z.cos() - 1, (x,))

    return run, (torch.randn(4),)


def branches_with_weights() -> Call:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cond(x.mean() > 0, self.a, self.b, (x,)).relu()

    return Gate(), (torch.randn(3, 4),)


def loop() -> Call:
    def run(i: Tensor, x: Tensor) -> object:
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x.sin() + 0.5), (i, x))

    return run, (torch.tensor(0), torch.randn(3))


def cumulative() -> Call:
    def step(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        new = carry * 0.9 + x
        return new, new.tanh()

    return lambda start, xs: scan(step, start, xs), (torch.zeros(3), torch.randn(5, 3))


def pairwise_scan() -> Call:
    return lambda x: associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic"), (
        torch.rand(6, 2) + 0.5,
    )


def mapped() -> Call:
    return lambda xs, y: torch_map(lambda x, y: x * y + 1, xs, y), (
        torch.randn(4, 3),
        torch.randn(3),
    )


def flexible_attention() -> Call:
    def bias(score: Tensor, b: Any, h: Any, q: Any, k: Any) -> Tensor:
        return score + (q - k) * 0.1

    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))
    return lambda q, k, v: flex_attention(q, k, v, score_mod=bias), (q, k, v)


def block_masked_attention() -> Call:
    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, 128, 128, device=q.device.type)
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask), (q, k, v)


def checkpointed_block() -> Call:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.f = nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 6))

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(2):
                x = x + checkpoint(self.f, x, use_reentrant=False)
            return x

    return Block(), (torch.randn(3, 6, requires_grad=True),)


def nested_region() -> Call:
    layer = nn.Linear(5, 5)
    region = torch.compiler.nested_compile_region(lambda x: layer(x).sin())
    return lambda x: region(region(x)).sum(), (torch.randn(2, 5),)


def grad_mode_regions() -> Call:
    def run(x: Tensor) -> Tensor:
        with torch.no_grad():
            y = x.sin()
        with torch.enable_grad():
            return x * y

    return run, (torch.randn(4, requires_grad=True),)


DECOMPOSED_LOOPS = (("inductor", "cpu"), ("inductor", "cuda"))
"""`scan` and `map` as loops: Inductor's decompositions read an index that has no value yet."""

PROGRAMS = (
    Healthy("two_branches", two_branches),
    Healthy("branches_with_weights", branches_with_weights, backward=True),
    Healthy("while_loop", loop),
    Healthy("scan", cumulative, bugs=DECOMPOSED_LOOPS),
    Healthy("associative_scan", pairwise_scan),
    Healthy("map", mapped, bugs=DECOMPOSED_LOOPS),
    Healthy("flex_attention", flexible_attention),
    Healthy("flex_attention_block_mask", block_masked_attention),
    Healthy("checkpointed_block", checkpointed_block, backward=True),
    Healthy("nested_region", nested_region),
    Healthy("grad_mode_regions", grad_mode_regions, backward=True),
)
