"""Operands of a draw: dtype, shape, layout, and the values that fill the storage.

A layout is a name for the strides of a shape. A value is a number or a word such as `nan` or `max`,
which each dtype resolves by itself: `max` is 127 in int8 and 65504 in float16.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

import torch
from torch import Tensor

from ctk.compiler.fx.clone import extent
from ctk.compiler.fx.types import dense_strides

LAYOUTS = (
    *("contiguous", "reversed", "swapped"),
    *("sliced", "expanded", "expanded last", "overlapping"),
)
"""The simplest first."""

DENSE = LAYOUTS[:3]
"""Layouts that a tensor with symbolic sizes may have."""

Place = Literal["input", "constant", "view"]
PLACES: tuple[Place, ...] = get_args(Place)

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


def strides_of(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Return the strides of a shape in a layout; a shape with too few dimensions is contiguous."""
    match layout:
        case "reversed":
            return _dense(shape[::-1])[::-1]
        case "swapped" if len(shape) > 1:
            *outer, row, column = shape
            *steps, a, b = _dense((*outer, column, row))
            return (*steps, b, a)
        case "sliced":
            return tuple(2 * step for step in _dense(shape))
        case "expanded" if shape:
            return (0, *_dense(shape[1:]))
        case "expanded last" if shape:
            return (*_dense(shape[:-1]), 0)
        case "overlapping":
            return (1,) * len(shape)
        case _:
            return _dense(shape)


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dense_strides(shape))


def draw_values(random: Random) -> tuple[Value, ...]:
    """Return the values to repeat in a storage; half of the draws are ordinary."""
    pool = ORDINARY if random.random() < 0.5 else SIMPLEST
    return tuple(random.choice(pool) for _ in range(random.choice((1, 2, 3, 5, 7))))


def resolve_value(value: Value, dtype: torch.dtype) -> int | float | bool | complex:
    """Return a value in a dtype; integers replace values that they lack by 0."""
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


@dataclass(frozen=True, slots=True)
class TensorDraw:
    """One tensor operand.

    Attributes:
        layout: One of `LAYOUTS`.
        values: Fill its storage, repeated.
        place: `input`: a placeholder; `constant`: an attribute of the graph; `view`: a view, made
            in the graph, of a placeholder.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    layout: str = "contiguous"
    values: tuple[Value, ...] = (1, 2, 3)
    place: Place = "input"

    def tensor(self) -> Tensor:
        """Return the operand."""
        strides = strides_of(self.shape, self.layout)
        values = [resolve_value(value, self.dtype) for value in self.values]
        repeated = [values[at % len(values)] for at in range(extent(self.shape, strides))]
        storage = torch.tensor(repeated, dtype=self.dtype, device="cpu")
        return storage.as_strided(self.shape, strides)


@dataclass(frozen=True, slots=True)
class Constant:
    """An operand other than a tensor: a number, None, a tuple of ints or a dtype."""

    value: object


@dataclass(frozen=True, slots=True)
class Variable:
    """An operand of a program; as the operand of another variable, one node stands for both."""

    name: str


Operand = TensorDraw | Constant | Variable | tuple[TensorDraw, ...]
