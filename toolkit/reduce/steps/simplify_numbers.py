"""Give the remaining values simpler numbers: 1, the least whole number, round ones.

`x[3, 4] = 110.3` becomes 101 if more than 100 is needed, so that 100 is the neighbour that does not
fail. If many values are left they are rounded together. Ladders, from mild to strong:

    110.3   ->  111, 110, ... 2, 1       whole numbers; the search ends at the least sufficient one
    54321   ->  54320, ... 50000         integers; then 10000, 1000, ... 1
    3e5     ->  100000.0, ... 10.0, 1.0  (then whole numbers, from 1024 on)
    0.037   ->  0.01, 0.1, 1.0           then fewer digits: 0.04
    nan     ->  inf, 1.0

Whole numbers keep their sign, because they may be indices.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import (
    Content,
    ContentRun,
    Number,
    digits_of,
    rank_of,
)
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.proposal import Monotone, Proposal, Proposals, Step, ladder_of_edits
from ctk.toolkit.reduce.value_edits import (
    ROUNDINGS,
    RoundValues,
    SetNumber,
    changeable,
    core_shape,
)

FEW = 8
"""Most numbers that are made simpler one by one."""

LARGEST_WHOLE = 1024
"""Above it, powers of ten are tried before whole numbers."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """Numbers from mild to strong: `number(1)` to `number(count)`."""

    number: Callable[[int], Number]
    count: int


def propose(case: Case, facts: Facts) -> Proposals:
    """Propose to round tensors of many values, then simpler numbers for each run of few values."""
    proposals: list[Proposal] = []
    for name, tensor in changeable(case).items():
        content = facts.contents.of(tensor)
        if _is_many(content) and not tensor.is_complex() and tensor.is_floating_point():
            proposals.append(
                ladder_of_edits(*(RoundValues((name,), rounding) for rounding in ROUNDINGS))
            )
        if len(content.runs) <= FEW and content.kind == "zeros":
            proposals.extend(_runs(name, tensor, content))
    return proposals


def _is_many(content: Content) -> bool:
    return not content.is_recipe or (content.kind == "zeros" and len(content.runs) > FEW)


def _runs(name: str, tensor: Tensor, content: Content) -> Iterator[Proposal]:
    shape = core_shape(tensor)
    for run in content.runs:
        for ladder in ladders(run.value, tensor.dtype):
            yield _climb(name, shape, run, ladder)


def _climb(name: str, shape: tuple[int, ...], run: ContentRun, ladder: Ladder) -> Monotone:
    def edit(n: int) -> SetNumber:
        return SetNumber(name, shape, run.start, run.stop, run.value, ladder.number(n))

    return Monotone(edit, ladder.count, strongest_first=True)


def ladders(value: Number, dtype: torch.dtype) -> tuple[Ladder, ...]:
    """Return the ladders of simpler numbers, the most rewarding first."""
    if isinstance(value, bool) or dtype == torch.bool:
        return ()
    if isinstance(value, complex):
        return tuple(_ladder_of([complex(value.real), 1 + 0j], value))
    if isinstance(value, int):
        return tuple(_of_integer(value))
    if not math.isfinite(value):
        return tuple(_ladder_of(_finite(value, dtype), value))
    return tuple(_of_float(value, dtype))


def _finite(value: float, dtype: torch.dtype) -> list[Number]:
    sign = -1.0 if value < 0 else 1.0
    largest = 10.0 ** math.floor(math.log10(torch.finfo(dtype).max))
    return [math.inf, 1.0] if math.isnan(value) else [sign * largest, sign, 1.0]


def _of_integer(value: int) -> Iterator[Ladder]:
    size, sign = abs(value), -1 if value < 0 else 1
    if size <= LARGEST_WHOLE:
        yield from _whole(value, size - 1)
        return
    digits = len(str(size))
    yield from _ladder_of([sign * 10**exponent for exponent in range(digits - 1, -1, -1)], value)
    rounded = [sign * (size // 10**count * 10**count) for count in range(1, digits)]
    yield from _ladder_of(list[Number](rounded), value)


def _of_float(value: float, dtype: torch.dtype) -> Iterator[Ladder]:
    size, sign = abs(value), math.copysign(1.0, value)
    if size > LARGEST_WHOLE:
        yield from _ladder_of([sign * ten for ten in _tens_above(size, dtype)], value)
    if size < 1:
        yield from _ladder_of([*(sign * ten for ten in _tens_below(size)), sign, 1.0], value)
    elif size <= LARGEST_WHOLE:
        yield from _whole(value, math.ceil(size) - (size == int(size)))
    digits, exponent = digits_of(value)
    rounded = [float(f"{value:.{count - 1}e}") for count in range(len(digits) - 1, 0, -1)]
    yield from _ladder_of([number for number in rounded if exponent > -40], value)
    yield from _ladder_of([size], value)


def _tens_above(size: float, dtype: torch.dtype) -> list[float]:
    """Return the powers of ten from the least one above (or equal) down to 1."""
    top = min(math.ceil(math.log10(size)), math.floor(math.log10(torch.finfo(dtype).max)))
    return [10.0**exponent for exponent in range(top, -1, -1)]


def _tens_below(size: float) -> list[float]:
    """Return the powers of ten from the largest one below (or equal) up to 0.1; none below 0."""
    if not size:
        return []
    bottom = max(-300, math.floor(math.log10(size)))
    return [float(f"1e{exponent}") for exponent in range(bottom, 0)]


def _whole(value: float, top: int) -> Iterator[Ladder]:
    """Yield the whole numbers of the same sign from `top` down to 1."""
    sign = -1 if value < 0 else 1
    if top > 0:
        yield Ladder(lambda n: type(value)(sign * (top + 1 - n)), top)


def _ladder_of(numbers: list[Number], value: Number) -> Iterator[Ladder]:
    simpler = [number for number in dict.fromkeys(numbers) if rank_of(number) < rank_of(value)]
    if simpler:
        yield Ladder(lambda n: simpler[n - 1], len(simpler))


STEP = Step("simplify_numbers", propose, detail="numbers")
