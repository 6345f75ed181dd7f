"""Random numbers from a seed and a counter: the operator `ctk::draw`, the same on every device.

    seeds = torch.randint(-(2**63), 2**63 - 1, [2])          # the only draw from the generator
    torch.ops.ctk.draw(seeds, 1, [3, 4], "uniform", torch.float32)

Philox4x32-10: a key of 64 bits (an element of `seeds`) and a counter give four words of 32 bits, so
that each number of a tensor depends on its place and on the seed only. The operator has no state:
two calls give the same numbers. Two counters never meet under one key; each call has its own key.

The kernel is tensor arithmetic in 64-bit integers, for any device. Its numbers differ from those of
torch's generators.

Source: J. Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (SC 2011); the numbers are
held to the known answers of their Random123.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_BUMPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = 0xFFFFFFFF
DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}
"""Bits of a number in [0, 1) that a dtype holds without rounding up to 1."""

_LIBRARY = torch.library.Library("ctk", "FRAGMENT")
_LIBRARY.define(
    "draw(Tensor seeds, int index, SymInt[] size, str kind, ScalarType dtype, "
    "int low=0, int high=0, int[]? stride=None) -> Tensor"
)


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return four tensors of words for four of counters and two of a key: 32 bits in an int64."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]  # wrap: the low 64 bits are right
        c0, c1, c2, c3 = _high(p1) ^ c1 ^ k0, p1 & _WORD, _high(p0) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + _BUMPS[0]) & _WORD, (k1 + _BUMPS[1]) & _WORD
    return c0, c1, c2, c3


def _high(product: Tensor) -> Tensor:
    return (product >> 32) & _WORD


def _words(seeds: Tensor, index: int, count: int) -> tuple[Tensor, ...]:
    """Return the four words of each counter."""
    seed = seeds[index]
    at = torch.arange(count, dtype=torch.int64, device=seeds.device)
    zero = torch.zeros_like(at)
    return philox((at & _WORD, at >> 32, zero, zero), (seed & _WORD, _high(seed)))


def _draw(
    seeds: Tensor,
    index: int,
    size: Sequence[int],
    kind: str,
    dtype: torch.dtype,
    low: int = 0,
    high: int = 0,
    stride: Sequence[int] | None = None,
) -> Tensor:
    """Draw a tensor: `uniform` in [0, 1), `normal`, `exponential`, or `integers` below `high`."""
    count = math.prod(size)
    if kind == "uniform" and dtype in DIGITS:
        words = torch.stack(_words(seeds, index, -(-count // 4)), -1)
        digits = DIGITS[dtype]
        numbers = (words >> (32 - digits)).to(dtype) * 2.0**-digits
    elif kind == "integers":
        numbers = (_pairs(seeds, index, count) >> 1 & (1 << 63) - 1) % (high - low) + low
    else:
        numbers = _CURVES[kind](_fractions(seeds, index, count))
    drawn = numbers.reshape(-1)[:count].reshape(tuple(size)).to(dtype)
    if kind == "exponential":  # programs divide by it
        drawn = drawn.clamp_min(torch.finfo(dtype).tiny)
    if stride is None:
        return drawn
    return torch.empty_strided(size, stride, dtype=dtype, device=seeds.device).copy_(drawn)


def _pairs(seeds: Tensor, index: int, count: int) -> Tensor:
    """Return words of 64 bits, in pairs."""
    w0, w1, w2, w3 = _words(seeds, index, -(-count // 2))
    return torch.stack((w0 << 32 | w1, w2 << 32 | w3), -1)


def _fractions(seeds: Tensor, index: int, count: int) -> Tensor:
    """Return numbers in [0, 1) with 53 bits, in pairs."""
    return (_pairs(seeds, index, count) >> 11 & (1 << 53) - 1).double() * 2.0**-53


def _normal(pairs: Tensor) -> Tensor:
    """Box and Muller: two normal numbers of two uniform ones."""
    radius = torch.sqrt(-2 * torch.log1p(-pairs[..., 0]))
    angle = pairs[..., 1] * (2 * math.pi)
    return torch.stack((radius * torch.cos(angle), radius * torch.sin(angle)), -1)


def _exponential(pairs: Tensor) -> Tensor:
    return -torch.log1p(-pairs)


_CURVES = {"uniform": lambda pairs: pairs, "normal": _normal, "exponential": _exponential}


def _fake_draw(
    seeds: Tensor,
    index: int,
    size: Sequence[int],
    kind: str,
    dtype: torch.dtype,
    low: int = 0,
    high: int = 0,
    stride: Sequence[int] | None = None,
) -> Tensor:
    if stride is None:
        return seeds.new_empty(size, dtype=dtype)
    return torch.empty_strided(size, stride, dtype=dtype, device=seeds.device)


_LIBRARY.impl("draw", _draw, "CompositeExplicitAutograd")
torch.library.register_fake("ctk::draw", _fake_draw, lib=_LIBRARY)
DRAW = torch.ops.ctk.draw.default
