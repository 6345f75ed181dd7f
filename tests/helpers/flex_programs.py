"""Programs with `flex_attention`: scores changed, keys masked, lengths and heads of many kinds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
    noop_mask,
)

from ctk.compiler.torch_compat.fx.operators import higher_order_op

Sizes = tuple[int, int, int, int, int, int, int]
"""Batch, heads of queries and of keys, queries, keys, parts of keys, parts of values."""

SQUARE: Sizes = 2, 4, 4, 130, 130, 16, 16


@dataclass(frozen=True)
class Flex:
    """One program.

    Attributes:
        score: Makes the function of a score of the captured tensors.
        mask: Makes the function of the mask; `heads` is whether it has blocks for each head.
        captured: The shapes of captured floats, which the functions get.
    """

    name: str
    score: Callable[..., Any] | None = None
    mask: Callable[..., Any] | None = None
    sizes: Sizes = SQUARE
    captured: tuple[tuple[int, ...], ...] = ()
    heads: bool = False
    block: int | tuple[int, int] = 128
    options: dict[str, Any] = field(default_factory=dict)
    kv_batch: int = 0
    is_transposed: bool = False

    def inputs(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> list[Tensor]:
        """Return queries, keys, values, and the captured tensors."""
        torch.manual_seed(0)
        batch, heads, groups, queries, keys, parts, sums = self.sizes
        shapes = (
            (batch, heads, queries, parts),
            (self.kv_batch or batch, groups, keys, parts),
            (self.kv_batch or batch, groups, keys, sums),
            *self.captured,
        )
        made = [torch.randn(shape).to(dtype).to(device) for shape in shapes]
        if self.is_transposed:
            made[:3] = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in made[:3]]
        return made

    def block_mask(self, device: str = "cpu") -> BlockMask | None:
        if self.mask is None:
            return None
        batch, heads, _, queries, keys, _, _ = self.sizes
        shape = (batch if self.heads else None), (heads if self.heads else None), queries, keys
        made = self.mask(device)
        return create_block_mask(made, *shape, device=device, BLOCK_SIZE=self.block)

    def call(self, device: str = "cpu") -> Callable[..., Any]:
        """Return the function of the inputs."""
        score, block_mask, options = self.score, self.block_mask(device), self.options

        def run(q: Tensor, k: Tensor, v: Tensor, *captured: Tensor) -> Any:
            change = None if score is None else score(*captured)
            return flex_attention(q, k, v, change, block_mask, **options)

        return run


def causal(_: str) -> Callable[..., Any]:
    return lambda b, h, q, k: q >= k


def window(_: str, size: int = 40) -> Callable[..., Any]:
    return lambda b, h, q, k: (q >= k) & (q - k < size)


def prefix(_: str) -> Callable[..., Any]:
    return lambda b, h, q, k: (k < 50) | (q >= k)


def documents(device: str) -> Callable[..., Any]:
    ids = (torch.arange(512, device=device) // 37).int()
    return lambda b, h, q, k: (ids[q] == ids[k]) & (q >= k)


def jagged(device: str) -> Callable[..., Any]:
    """Keys in pages: a table of pages gives the place of a key, and lengths differ by batch."""
    pages = torch.arange(64, device=device) * 7 % 64
    lengths = torch.tensor([100, 61], device=device)

    def mask(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (pages[k // 16] * 16 + k % 16 < 900) & (k < lengths[b])

    return mask


def by_head(_: str) -> Callable[..., Any]:
    return lambda b, h, q, k: (q - k < 8 * (h + 1)) & (q >= k)


def nothing(_: str) -> Callable[..., Any]:
    return lambda b, h, q, k: (q >= k) & (q > 60)


def alibi(slopes: Tensor) -> Callable[..., Any]:
    return lambda s, b, h, q, k: s + slopes[h] * (k - q)


def capped() -> Callable[..., Any]:
    return lambda s, b, h, q, k: 5 * torch.tanh(s / 5)


def relative(table: Tensor) -> Callable[..., Any]:
    return lambda s, b, h, q, k: s + table[h, q - k + 150]


def full_bias(bias: Tensor) -> Callable[..., Any]:
    return lambda s, b, h, q, k: s + bias[b, h, q, k]


def chosen(bias: Tensor) -> Callable[..., Any]:
    return lambda s, b, h, q, k: torch.where(q >= k, s * bias[0], s - bias[1] * h)


GQA = {"enable_gqa": True}

PROGRAMS = (
    Flex("plain"),
    Flex("causal", mask=causal),
    Flex("window", mask=window, sizes=(1, 2, 2, 300, 300, 8, 8)),
    Flex("prefix", mask=prefix),
    Flex("documents", mask=documents, sizes=(1, 2, 2, 200, 200, 16, 16)),
    Flex("jagged", mask=jagged, heads=True),
    Flex("by_head", mask=by_head, heads=True, block=64),
    Flex("alibi", score=alibi, captured=((4,),)),
    Flex("alibi_causal", score=alibi, mask=causal, captured=((4,),)),
    Flex("capped", score=capped, mask=window),
    Flex("relative", score=relative, captured=((4, 300),)),
    Flex("full_bias", score=full_bias, mask=causal, captured=((2, 4, 130, 130),)),
    Flex("chosen", score=chosen, captured=((2,),)),
    Flex("grouped", mask=causal, sizes=(2, 6, 2, 130, 130, 16, 16), options=GQA),
    Flex("other_values", mask=prefix, sizes=(2, 2, 2, 70, 70, 16, 24)),
    Flex("odd_parts", mask=causal, sizes=(1, 2, 2, 65, 65, 20, 12)),
    Flex("cross", score=capped, sizes=(2, 4, 2, 33, 257, 16, 16), options=GQA),
    Flex("one_query", score=capped, sizes=(2, 4, 2, 1, 257, 16, 16), options=GQA),
    Flex("one_batch_of_keys", mask=jagged, heads=True, kv_batch=1),
    Flex("small_blocks", mask=window, block=(32, 64), sizes=(1, 2, 2, 130, 130, 16, 16)),
    Flex("odd_blocks", mask=partial(window, size=20), block=(48, 80)),
    Flex("scaled", options={"scale": 0.5}),
    Flex("empty_rows", mask=nothing, options={"return_aux": AuxRequest(lse=True)}),
    Flex("logarithms", score=capped, options={"return_aux": AuxRequest(lse=True)}),
    Flex("transposed", mask=causal, is_transposed=True),
)


def exact(program: Flex, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the results of eager in float64."""
    device = inputs[0].device.type
    return results(program.call(device)(*(each.double() for each in inputs)))


def results(made: Any) -> list[Tensor]:
    """Return the tensors of a result: attention, and the logarithms if asked for."""
    return [made] if isinstance(made, Tensor) else [made[0], made[1].lse]


def dense(program: Flex, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return attention and its logarithms from all scores at once, with gradients of everything."""
    q, k, v, *captured = inputs
    batch, heads, groups, queries, keys, parts, _ = program.sizes
    k, v = (x.expand(batch, *x.shape[1:]).repeat_interleave(heads // groups, 1) for x in (k, v))
    shapes = (batch, 1, 1, 1), (1, heads, 1, 1), (1, 1, queries, 1), (1, 1, 1, keys)
    places = [torch.arange(max(each), device=q.device).view(each) for each in shapes]
    scores = q @ k.mT * program.options.get("scale", parts**-0.5)
    if program.score is not None:
        scores = program.score(*captured)(scores, *places)
    if program.mask is not None:
        mask = program.mask(q.device.type)(*places)
        scores = scores.masked_fill(~mask, float("-inf"))
    logarithm = scores.logsumexp(-1)
    weights = (scores - logarithm.nan_to_num(neginf=0)[..., None]).exp()
    return [weights @ v, logarithm]


def gradients(call: Callable[..., list[Tensor]], inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the result of attention, and the gradients of all inputs, of its logarithms too."""
    given = [each.clone().requires_grad_() for each in inputs]
    result, logarithm = call(*given)
    torch.manual_seed(1)
    weight = torch.randn(result.shape).to(result)
    loss = (result * weight).sum() + logarithm.masked_fill(logarithm.isinf(), 0).square().sum()
    loss.backward()
    return [result, *(each.grad for each in given if each.grad is not None)]


def operator_call(program: Flex) -> Callable[..., list[Tensor]]:
    """Return a function that calls the operator of `flex_attention`, which a CPU trains as well."""
    operator: Any = higher_order_op("flex_attention")
    lengths = program.sizes[3:5]
    empty = create_block_mask(noop_mask, None, None, *lengths, device="cpu")
    mask = program.block_mask() or empty
    scale = program.options.get("scale", program.sizes[5] ** -0.5)
    options = {"BACKEND": "AUTO", "OUTPUT_LOGSUMEXP": True}

    def run(q: Tensor, k: Tensor, v: Tensor, *captured: Tensor) -> list[Tensor]:
        change = program.score(*captured) if program.score else lambda s, *_: s
        result, logarithm, _ = operator(q, k, v, change, mask.as_tuple(), scale, options)
        return [result, logarithm * math.log(2)]

    return run
