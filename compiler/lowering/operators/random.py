"""Lowerings of random numbers by counter: `ctk::draw`, with the bits of the operator.

Draws from torch's generators (`rand`, `native_dropout`) stay calls of the library: their numbers
are eager's.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ctk.compiler.lowering.arrays import Array, At, apply, cast, constant, filled, raised, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.ir import Dtype, Op, Position
from ctk.compiler.lowering.layout import flatten
from ctk.compiler.passes.joint.philox import DIGITS, DRAW
from ctk.compiler.sizes.index import Index, as_index

_PAIR = 2
"""How many numbers of 64 bits a counter gives."""


def _draw(
    _: Builder, seeds: Array, index: int, size: Sequence[Any], kind: str, dtype: Dtype,
    low: int = 0, high: int = 0, stride: object = None,
) -> Array:  # fmt: skip
    shape = tuple(map(as_index, size))
    if kind == "uniform" and dtype in DIGITS:
        return _narrow(seeds, index, shape, dtype)
    if kind == "integers":
        positive = apply("and", _bits(seeds, index, shape, _same), _number((1 << 63) - 1))
        return cast(apply("mod", positive, _number(high - low)) + low, dtype)
    if kind == "uniform":
        return cast(_fraction(seeds, index, shape, _same), dtype)
    if kind == "normal":
        return cast(_normal(seeds, index, shape), dtype)
    decay = -apply("log1p", -_fraction(seeds, index, shape, _same))
    numbers = raised(cast(decay, dtype))
    return apply("maximum", numbers, filled(numbers, torch.finfo(dtype).tiny))


def _narrow(seeds: Array, index: int, shape: tuple[Index, ...], dtype: Dtype) -> Array:
    digits = DIGITS[dtype]

    def number(at: At) -> tuple[Index, Index]:
        place = flatten(at, shape)
        return place // 4, place % 4

    shifted = apply("shr", _words(seeds, index, shape, number), _number(32 - digits))
    return raised(cast(shifted, torch.float32)) * 2.0**-digits


def _normal(seeds: Array, index: int, shape: tuple[Index, ...]) -> Array:
    """Box and Muller: two normal numbers of the same two uniform ones."""
    first = _fraction(seeds, index, shape, lambda place: place // 2 * 2)
    second = _fraction(seeds, index, shape, lambda place: place // 2 * 2 + 1)
    radius = apply("sqrt", apply("log1p", -first) * -2.0)
    angle = second * (2 * math.pi)
    is_odd = Array(shape, torch.int64, lambda at: Position(flatten(at, shape) % 2)) > 0
    return radius * where(is_odd, apply("sin", angle), apply("cos", angle))


def _fraction(
    seeds: Array, index: int, shape: tuple[Index, ...], place: Callable[[Index], Index]
) -> Array:
    """Return numbers in [0, 1) with 53 bits."""
    top = apply(
        "and", apply("shr", _bits(seeds, index, shape, place), _number(11)), _number((1 << 53) - 1)
    )
    return cast(top, torch.float64) * 2.0**-53


def _bits(
    seeds: Array, index: int, shape: tuple[Index, ...], place: Callable[[Index], Index]
) -> Array:

    def half(which: int) -> Array:
        def number(at: At) -> tuple[Index, Index]:
            where = place(flatten(at, shape))
            return where // _PAIR, where % _PAIR * 2 + which

        return _words(seeds, index, shape, number)

    return apply("or", apply("shl", half(0), _number(32)), half(1))


def _words(
    seeds: Array, index: int, shape: tuple[Index, ...], number: Callable[[At], tuple[Index, Index]]
) -> Array:
    """Return words of 32 bits; `number` gives the counter and which of its four words."""
    seed = seeds.at((as_index(index),))

    def element(at: At) -> Op:
        counter, lane = number(at)
        return Op("philox", (seed, Position(counter), Position(lane)), torch.int64)

    return Array(shape, torch.int64, element)


def _same(place: Index) -> Index:
    return place


def _number(value: int) -> Array:
    return constant(value, torch.int64)


TABLE: Mapping[object, Callable[..., Array]] = {DRAW: _draw}
