"""Attention as people write it: the thirty forms of Inductor's `fuse_attention`, and others.

The numbers are those of `_sfdp_pattern_1` to `_sfdp_pattern_30` of
`torch/_inductor/fx_passes/fuse_attention.py`; the functions are written from the models that they
name. Dropout is off: where it is on, no kernel draws the numbers of eager.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

BATCH, HEADS, LENGTH, WIDTH = 2, 4, 8, 16
aten = torch.ops.aten


@dataclass(frozen=True)
class Form:
    """A program, and what makes its inputs: `q`, `k`, `v`, then masks."""

    name: str
    run: Callable[..., Tensor | tuple[Tensor, ...]]
    inputs: Callable[[torch.dtype], list[Tensor]]


def heads_first(dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH, dtype=dtype) for _ in "qkv"]


def tokens_first(dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(BATCH, LENGTH, HEADS, WIDTH, dtype=dtype) for _ in "qkv"]


def flat(dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(BATCH * HEADS, LENGTH, WIDTH, dtype=dtype) for _ in "qkv"]


def columns(dtype: torch.dtype) -> list[Tensor]:
    sizes, strides = (2, 6, 16, 8), (2304, 128, 1, 16)
    return [torch.empty_strided(sizes, strides, dtype=dtype).normal_() for _ in "qkv"]


def padding(dtype: torch.dtype) -> Tensor:
    """A mask to add: the last tokens of a row, and all of another row of the batch."""
    mask = torch.zeros(BATCH, 1, 1, LENGTH, dtype=dtype)
    mask[0, ..., 5:] = torch.finfo(dtype).min
    mask[1] = torch.finfo(dtype).min
    return mask


def square(dtype: torch.dtype) -> Tensor:
    mask = torch.randn(1, 1, LENGTH, LENGTH, dtype=dtype)
    mask[..., 2, :] = -torch.inf
    return mask


def ones() -> Tensor:
    kept = torch.ones(BATCH, LENGTH)
    kept[0, 5:] = 0
    kept[1] = 0
    return kept


def causal() -> Tensor:
    kept = torch.ones(1, 1, LENGTH, LENGTH, dtype=torch.bool).tril()
    kept[..., 3, :] = False
    return kept


def with_mask(
    inputs: Callable[[torch.dtype], list[Tensor]], *masks: Callable[[torch.dtype], Tensor]
) -> Callable[[torch.dtype], list[Tensor]]:
    return lambda dtype: [*inputs(dtype), *(mask(dtype) for mask in masks)]


def split(*tensors: Tensor) -> list[Tensor]:
    return [each.permute(0, 2, 1, 3) for each in tensors]


def drop(weights: Tensor) -> Tensor:
    return functional.dropout(weights, 0.0)


def keep(weights: Tensor) -> Tensor:
    return weights


def divided(last=keep, first=lambda *each: each):
    def run(q, k, v):
        q, k, v = first(q, k, v)
        return last(torch.matmul(q, k.transpose(-2, -1)).div(4.0).softmax(dim=-1)).matmul(v)

    return run


def multiplied(q, k, v):
    return (q @ k.transpose(-2, -1)).mul(0.3).softmax(dim=-1).matmul(v)


def multiplied_dropout(q, k, v):
    return drop((q @ k.transpose(-2, -1)).mul(0.3).softmax(dim=-1)).matmul(v)


def masked(last=keep, first=lambda *each: each):
    def run(q, k, v, mask):
        dtype = q.dtype
        q, k, v = first(q, k, v)
        weights = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(WIDTH) + mask, dim=-1)
        return last(weights).to(dtype) @ v

    return run


def in_float(*, early, last=keep):
    def run(q, k, v):
        q, k, v = split(q, k, v)
        scores = (q / 4.0) @ k.transpose(-2, -1) if early else q @ k.transpose(-2, -1) / 4.0
        return last(torch.softmax(scores.to(torch.float32), dim=-1)).to(v.dtype) @ v

    return run


def batched(q, k, v):
    return torch.bmm(drop(torch.bmm(q, k.transpose(1, 2)).softmax(dim=-1)), v)


def distilbert(*, early=False, last=keep):
    def run(q, k, v, mask):
        q, k, v = split(q, k, v)
        scores = q.div(4.0) @ k.transpose(-2, -1) if early else (q @ k.transpose(-2, -1)).div(4.0)
        empty = (mask == 0).view(q.size(0), 1, 1, k.size(-2)).expand_as(scores)
        scores = scores.masked_fill(empty, torch.tensor(-float("inf")))
        return last(torch.softmax(scores, dim=-1)) @ v

    return run


def gpt2_scores(q, k, kept):
    scores = torch.matmul(q, k.transpose(-1, -2))
    scores = scores / torch.full([], k.size(-1) ** 0.5, dtype=scores.dtype)
    low = torch.full([], torch.finfo(scores.dtype).min, dtype=scores.dtype)
    return torch.where(kept, scores, low)


def gpt2(q, k, v, kept):
    q, k, v = split(q, k, v)
    return drop(gpt2_scores(q, k, kept).softmax(dim=-1)).matmul(v), k, v


def gpt2_padded(q, k, v, kept, mask):
    weights = (gpt2_scores(q, k, kept) + mask).softmax(dim=-1).type(v.dtype)
    return drop(weights).matmul(v)


def t5(*, in_float, last=keep, all_of_them=True):
    def run(q, k, v, mask=None):
        dtype = q.dtype
        q, k, v = split(q, k, v)
        scores = torch.matmul(q, k.transpose(3, 2))
        if in_float:
            scores = (scores.float() if mask is None else scores + mask).type_as(q)
        elif mask is not None:
            scores += mask
        out = last(torch.softmax(scores.float(), dim=-1).to(dtype)).matmul(v)
        return (out, k, v) if all_of_them else out

    return run


def mbart(q, k, v, mask):
    shape = (BATCH * HEADS, -1, WIDTH)
    q, k, v = q.view(shape), k.reshape(shape), v.reshape(shape)
    scores = torch.bmm(q, k.transpose(1, 2)).view(BATCH, HEADS, LENGTH, -1) + mask
    weights = functional.softmax(scores.view(BATCH * HEADS, LENGTH, -1), dim=-1)
    return torch.bmm(weights.to(v.dtype), v).view(BATCH, HEADS, LENGTH, WIDTH)


def safe(q, k, v, mask=None):
    q, k, v = split(q, k, v)
    scores = aten.mul.Scalar(q, 0.5) @ aten.mul.Scalar(k.transpose(-2, -1), 0.5)
    scores = scores if mask is None else scores + mask
    return aten._safe_softmax(scores, -1) @ v


def _float_padding(dtype: torch.dtype) -> Tensor:
    return padding(torch.float32)


PADDED, FLOAT = with_mask(tokens_first, padding), with_mask(tokens_first, _float_padding)
KEPT = with_mask(tokens_first, lambda dtype: ones())
SQUARE = with_mask(heads_first, square)
INDUCTOR = (
    Form("1", divided(), heads_first),
    Form("2", multiplied, heads_first),
    Form("3", divided(drop), heads_first),
    Form("4", multiplied_dropout, heads_first),
    Form("5", masked(), SQUARE),
    Form("6", masked(drop), SQUARE),
    Form("7", in_float(early=False, last=drop), tokens_first),
    Form("8", in_float(early=False), tokens_first),
    Form("9", in_float(early=True, last=drop), tokens_first),
    Form("10", in_float(early=True), tokens_first),
    Form("11", divided(first=split), tokens_first),
    Form("12", divided(drop, first=split), tokens_first),
    Form("13", batched, flat),
    Form("14", masked(first=split), PADDED),
    Form("15", distilbert(), KEPT),
    Form("16", masked(drop, first=split), PADDED),
    Form("16_float_mask", masked(drop, first=split), FLOAT),
    Form("17", distilbert(last=drop), KEPT),
    Form("18", gpt2, with_mask(tokens_first, lambda dtype: causal())),
    Form(
        "19",
        gpt2_padded,
        with_mask(heads_first, lambda dtype: causal(), lambda dtype: square(torch.float32)),
    ),
    Form("20", distilbert(early=True, last=drop), KEPT),
    Form("21", t5(in_float=True, all_of_them=False), FLOAT),
    Form("22", t5(in_float=True), FLOAT),
    Form("23", t5(in_float=True), tokens_first),
    Form("24", mbart, with_mask(heads_first, lambda dtype: square(torch.float32))),
    Form("25", t5(in_float=False, last=drop, all_of_them=False), PADDED),
    Form("26", t5(in_float=False, last=drop), PADDED),
    Form("27", t5(in_float=False, last=drop), tokens_first),
    Form("28", multiplied_dropout, columns),
    Form("29", safe, with_mask(tokens_first, square)),
    Form("30", safe, tokens_first),
)
"""Named by the number of the pattern of Inductor that it is."""


def _einsum(q, k, v):
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


def _einsum_tokens(q, k, v):
    weights = torch.einsum("bqhd,bkhd->bhqk", q, k).mul(0.3).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def _bloom(q, k, v, alibi, mask):
    scores = torch.baddbmm(alibi, q, k.transpose(1, 2), beta=1.0, alpha=0.3)
    scores = scores.view(BATCH, HEADS, LENGTH, LENGTH) + mask
    weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.bmm(weights.view(BATCH * HEADS, LENGTH, LENGTH), v)


def _autocast(q, k, v):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ((q @ k.mT) / 4).softmax(-1) @ v


def _grouped(q, k, v):
    k, v = (
        each[:, : HEADS // 2, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for each in (k, v)
    )
    return (q @ k.mT / 4).softmax(-1) @ v


def _one_head(q, k, v):
    return (q @ k[:, :1].mT / 4).softmax(-1) @ v[:, :1]


def _swin(q, k, v, bias, mask):
    scores = (q * 0.25) @ k.transpose(-2, -1) + bias
    scores = scores.view(BATCH // 2, 2, HEADS, LENGTH, LENGTH) + mask[None, :, None]
    return scores.view(-1, HEADS, LENGTH, LENGTH).softmax(-1) @ v


def _nano(q, k, v, kept):
    scores = (q @ k.mT * (1 / math.sqrt(WIDTH))).masked_fill(kept == 0, float("-inf"))
    return scores.softmax(-1) @ v


def _annotated(q, k, v, kept):
    return (q @ k.mT / 4).masked_fill(kept == 0, -1e9).softmax(-1) @ v


def _merged(q, k, v):
    q, k, v = split(q, k, v)
    out = torch.matmul((q @ k.mT / 4).softmax(-1), v)
    return out.transpose(1, 2).contiguous().reshape(BATCH, LENGTH, HEADS * WIDTH)


def _deep(q, k, v):
    q, k, v = (each.reshape(1, BATCH, HEADS, LENGTH, WIDTH) for each in (q, k, v))
    return (q @ k.mT / 4).softmax(-1) @ v


def _three_masks(q, k, v, kept, added, other):
    scores = torch.where(kept, q @ k.mT / 4 + added, torch.finfo(torch.float32).min)
    return torch.where(~other, -torch.inf, scores).softmax(-1) @ v


def _biases(dtype: torch.dtype) -> Tensor:
    return torch.randn(1, HEADS, LENGTH, LENGTH, dtype=dtype)


def _windows(dtype: torch.dtype) -> Tensor:
    return square(dtype)[0].expand(2, -1, -1)


def _alibi(dtype: torch.dtype) -> Tensor:
    return torch.randn(BATCH * HEADS, 1, LENGTH, dtype=dtype)


_CAUSAL = with_mask(heads_first, lambda dtype: causal())
OTHERS = (
    Form("einsum", _einsum, heads_first),
    Form("einsum_tokens", _einsum_tokens, tokens_first),
    Form("bloom", _bloom, with_mask(flat, _alibi, square)),
    Form("autocast", _autocast, heads_first),
    Form("grouped", _grouped, heads_first),
    Form("one_head", _one_head, heads_first),
    Form("swin", _swin, with_mask(heads_first, _biases, _windows)),
    Form("nano", _nano, _CAUSAL),
    Form("annotated", _annotated, _CAUSAL),
    Form("merged", _merged, tokens_first),
    Form("deep", _deep, heads_first),
    Form(
        "three_masks",
        _three_masks,
        with_mask(heads_first, lambda d: causal(), square, lambda d: causal()[..., -1:, :]),
    ),
)
"""Forms that Inductor leaves alone, or some of whose layouts."""
