"""The numbers that operands are filled with: words such as `nan` or `max`, told apart by dtype.

A draw holds words, so that it means something in every dtype: `max` is 127 in int8 and 65504 in
float16. What it does not do: it draws nothing (`draws.py`).
"""

from collections.abc import Sequence
from random import Random

import torch
from torch import Tensor

Value = int | float | str

DTYPES: tuple[torch.dtype, ...] = (
    torch.float32,
    torch.int64,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.bool,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.complex64,
    torch.complex128,
)
"""From the simplest to read to the most exotic."""

ORDINARY: tuple[Value, ...] = (1, 2, 3, 0, -1, 5, 0.5, -2.5, 7, 100, -90)
SPECIAL: tuple[Value, ...] = (
    *("-0.0", "nan", "inf", "-inf", "max", "min", "tiny", "-tiny", "next to 1", "half max"),
    *("large", "least"),
)
SIMPLEST: tuple[Value, ...] = (*ORDINARY, *SPECIAL)
"""Every value, the simplest first: the order of shrinking."""


def draw_values(random: Random) -> tuple[Value, ...]:
    """Return the values that fill an operand, again and again; half of the draws are ordinary."""
    pool = ORDINARY if random.random() < 0.5 else SIMPLEST
    return tuple(random.choice(pool) for _ in range(random.choice((1, 2, 3, 5, 7))))


def number(value: Value, dtype: torch.dtype) -> int | float | bool | complex:
    """Return what a value is in a dtype; integers take 0 for what they do not have."""
    if dtype is torch.bool:
        return value not in (0, "-0.0")
    if not (dtype.is_floating_point or dtype.is_complex):
        info = torch.iinfo(dtype)
        words = {"max": info.max, "inf": info.max, "min": info.min, "-inf": info.min}
        words |= {"half max": info.max // 2 + 1, "large": int(info.max**0.74)}
        whole = words.get(value, 0) if isinstance(value, str) else int(value)
        return max(whole, info.min) if info.min < 0 else abs(whole) & info.max
    info = torch.finfo(dtype)
    tiny = info.smallest_normal / 4
    words = {"max": info.max, "min": -info.max, "tiny": tiny, "-tiny": -tiny}
    words |= {"least": info.smallest_normal * info.eps}
    words |= {"next to 1": 1 + info.eps, "half max": info.max / 2, "large": info.max**0.74}
    real = words.get(value, 0.0) if value in words else float(value)
    return complex(real, real) if dtype.is_complex and value in SPECIAL else real


def filled(dtype: torch.dtype, values: Sequence[Value], count: int) -> Tensor:
    """Return a flat tensor of so many elements that holds the values, again and again."""
    numbers = [number(values[index % len(values)], dtype) for index in range(count)]
    return torch.tensor(numbers, dtype=dtype, device="cpu")
