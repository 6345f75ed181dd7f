"""Recipes for the values of tensors that are not stored.

`WrittenRecipe` is exact: it lists the numbers of a tensor with few different ones. The other
recipes are synthetic: they resemble a tensor without holding its numbers.

Floats: bell-shaped with the recorded mean and deviation, clamped to the recorded range, with as
many NaN and Inf as were there. Integers: uniform within the recorded bounds (so that indices stay
valid). Booleans: with the recorded share of True.

The same recipe gives the same bits on every load and every machine: only uniform numbers of
torch's CPU generator are drawn, and only additions and multiplications are applied to them, one
operation per kernel. (`torch.randn` takes logarithms and cosines, whose last bit differs between
machines.)
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.checked_types import NumberText
from ctk.toolkit.case.formats.plain_text import quote_value
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.formats.tensor_content import (
    Content,
    ContentRun,
    build_content,
    number_from,
    short_content,
    text_of,
)

_CHUNK = 1 << 18
"""Elements per draw; part of the format, because it fixes the order of the draws."""

_INT64 = torch.iinfo(torch.int64)
_LARGEST = torch.finfo(torch.float64).max


@document
@dataclass(frozen=True, slots=True)
class Normal:
    """Floats: bell-shaped, within bounds, with some that are not finite."""

    seed: int
    mean: float = 0.0
    deviation: float = 1.0
    min: float = -4.0
    max: float = 4.0
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    kind: Literal["normal"] = "normal"


@document
@dataclass(frozen=True, slots=True)
class Uniform:
    """Integers, all of a range equally often."""

    seed: int
    low: int
    high: int
    kind: Literal["uniform"] = "uniform"


@document
@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Booleans, with a share of True."""

    seed: int
    share: float
    kind: Literal["bernoulli"] = "bernoulli"


@document
@dataclass(frozen=True, slots=True)
class Piece:
    """Elements that hold one number, as Python writes it: `101.0`, `nan`, `True`, `(1+2j)`."""

    start: int
    stop: int
    value: NumberText


@document
@dataclass(frozen=True, slots=True)
class WrittenRecipe:
    """The numbers themselves: zeros (or `arange`) but for a few pieces."""

    base: Literal["zeros", "arange"] = "zeros"
    pieces: tuple[Piece, ...] = ()
    kind: Literal["written"] = "written"


Recipe = Annotated[Normal | Uniform | Bernoulli | WrittenRecipe, Field(discriminator="kind")]


def find_written_recipe(values: Tensor) -> WrittenRecipe | None:
    """Return the recipe of the same bits, if it is much shorter than the values."""
    content = short_content(values)
    if content is None or len(content.runs) > max(1, values.numel() // 4):
        return None
    pieces = tuple(Piece(run.start, run.stop, text_of(run.value)) for run in content.runs)
    return WrittenRecipe("arange" if content.kind == "arange" else "zeros", pieces)


def default_recipe(dtype: torch.dtype, seed: int) -> Recipe:
    """Return the recipe of a tensor whose values are unknown: normal(0, 1), or integers 0 and 1."""
    if dtype == torch.bool:
        return Bernoulli(seed, share=0.5)
    if not (dtype.is_floating_point or dtype.is_complex):
        return Uniform(seed, low=0, high=1)
    return Normal(seed)


def measure_recipe(values: Tensor, seed: int) -> Recipe:
    """Return the recipe that resembles a tensor."""
    if values.numel() == 0:
        return default_recipe(values.dtype, seed)
    if values.dtype == torch.bool:
        return Bernoulli(seed, share=values.double().mean().item())
    if values.is_complex():
        return _measure_floats(torch.view_as_real(values.resolve_conj()), seed)
    if values.is_floating_point():
        return _measure_floats(values, seed)
    wide = values.to(torch.int64)  # unsigned types have no min and max of their own
    return Uniform(seed, low=int(wide.min().item()), high=int(wide.max().item()))


def _measure_floats(values: Tensor, seed: int) -> Normal:
    values = values if values.dtype == torch.float64 else values.to(torch.float32)
    special = Normal(
        seed,
        nan=int(values.isnan().sum()),
        posinf=int(values.isposinf().sum()),
        neginf=int(values.isneginf().sum()),
    )
    finite = values[values.isfinite()]
    if finite.numel() == 0:
        return special
    mean = _clamp(finite.mean(dtype=torch.float64).item())
    square = torch.linalg.vector_norm(finite, dtype=torch.float64).item() ** 2 / finite.numel()
    return replace(
        special,
        mean=mean,
        deviation=_clamp(math.sqrt(max(0.0, square - mean * mean))),
        min=finite.min().item(),
        max=finite.max().item(),
    )


def _clamp(value: float) -> float:
    """Return a number that JSON can hold; sums of the largest floats are infinite."""
    return min(max(value, -_LARGEST), _LARGEST)


def synthesize(recipe: Recipe, numel: int, dtype: torch.dtype, where: str) -> Tensor:
    """Return the `[numel]` values of a recipe, on the CPU; raise `CaseError` if they do not fit."""
    if isinstance(recipe, WrittenRecipe):
        return _write(recipe, numel, dtype, where)
    generator = torch.Generator("cpu").manual_seed(recipe.seed & 0xFFFFFFFF)
    match recipe:
        case Normal():
            return _draw_normal(recipe, numel, dtype, generator, where)
        case Uniform():
            return _draw_uniform(recipe, numel, dtype, generator, where)
        case Bernoulli():
            drawn = torch.rand(numel, dtype=torch.float64, generator=generator, device="cpu")
            return (drawn < recipe.share).to(dtype)


def _write(recipe: WrittenRecipe, numel: int, dtype: torch.dtype, where: str) -> Tensor:
    runs: list[ContentRun] = []
    for piece in recipe.pieces:
        if not 0 <= piece.start < piece.stop <= numel:
            span = quote_value((piece.start, piece.stop))
            raise CaseError(f"{where}: elements {span} are not among {numel}")
        try:
            number = number_from(piece.value, dtype)
        except ValueError as error:
            shown = quote_value(piece.value)
            raise CaseError(f"{where}: {shown} is not a number of {dtype}") from error
        runs.append(ContentRun(piece.start, piece.stop, number))
    return build_content(Content(recipe.base, tuple(runs)), (numel,), dtype)


def _draw_normal(
    recipe: Normal, numel: int, dtype: torch.dtype, generator: torch.Generator, where: str
) -> Tensor:
    count = numel * 2 if dtype.is_complex else numel
    real = dtype.to_real() if dtype.is_complex else dtype
    values = torch.empty(count, dtype=real, device="cpu")
    for start in range(0, count, _CHUNK):
        part = values[start : start + _CHUNK]
        bell = _bell(part.numel(), generator).mul_(recipe.deviation).add_(recipe.mean)
        part.copy_(bell.clamp_(recipe.min, recipe.max))
    _plant(values, recipe, where)
    return torch.view_as_complex(values.view(-1, 2)) if dtype.is_complex else values


def _bell(count: int, generator: torch.Generator) -> Tensor:
    """Sum of four uniforms, scaled to mean 0 and deviation 1 (float64, within +-3.5)."""
    total = torch.zeros(count, dtype=torch.float64, device="cpu")
    for _ in range(4):
        draws = torch.rand(count, dtype=torch.float64, generator=generator, device="cpu")
        total.add_(draws)
    return total.sub_(2.0).mul_(math.sqrt(3.0))


def _plant(values: Tensor, recipe: Normal, where: str) -> None:
    """Put NaN and infinities at evenly spaced places, the same on each load."""
    counts = [recipe.nan, recipe.posinf, recipe.neginf]
    total = sum(counts)
    if min(counts) < 0 or total > values.numel():
        raise CaseError(
            f"{where}: {quote_value(counts)} special values do not fit {values.numel()} elements"
        )
    if total == 0:
        return
    pairs = zip((math.nan, math.inf, -math.inf), counts, strict=True)
    special = [number for number, count in pairs for _ in range(count)]
    places = torch.arange(total, device="cpu") * values.numel() // total
    values[places] = torch.tensor(special, dtype=torch.float64, device="cpu").to(values.dtype)


def _draw_uniform(
    recipe: Uniform, numel: int, dtype: torch.dtype, generator: torch.Generator, where: str
) -> Tensor:
    low, high = recipe.low, recipe.high
    if not _INT64.min <= low <= high <= _INT64.max:
        raise CaseError(f"{where}: [{low}, {high}] are not bounds of integers")
    above = min(high + 1, _INT64.max)
    values = torch.randint(
        low, above, (numel,), generator=generator, dtype=torch.int64, device="cpu"
    )
    return values.to(dtype)
