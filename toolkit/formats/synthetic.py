"""Recipes: synthetic values that resemble a tensor without holding its numbers.

Floats: bell-shaped with the recorded mean and deviation, clamped to the recorded range, with as
many NaN and Inf as were there. Integers: uniform within the recorded bounds (so that indices stay
valid). Booleans: with the recorded share of True.

The same recipe gives the same bits on every load and every machine: only uniform numbers of
torch's CPU generator are drawn, and only additions and multiplications are applied to them, one
operation per kernel. (`torch.randn` takes logarithms and cosines, whose last bit differs between
machines.) What it does not do: correlations between elements or tensors.
"""

import math
from collections.abc import Callable, Mapping
from typing import cast

import torch
from torch import Tensor

from ctk.compiler.errors import CaseError
from ctk.toolkit.formats.strict_json import Json, expect, member
from ctk.toolkit.graphs.argument_json import float_from_json, float_to_json

_CHUNK = 1 << 18
"""Elements drawn at a time; part of the format, because it fixes the order of the draws."""

_INT64 = torch.iinfo(torch.int64)


def default_recipe(dtype: torch.dtype, seed: int) -> Json:
    """Return the recipe of a tensor whose values are unknown: normal(0, 1), or integers 0 and 1."""
    if dtype == torch.bool:
        return {"kind": "bernoulli", "seed": seed, "share": 0.5}
    if not (dtype.is_floating_point or dtype.is_complex):
        return {"kind": "uniform", "seed": seed, "low": 0, "high": 1}
    return _normal(seed, mean=0.0, deviation=1.0, low=-4.0, high=4.0)


def measure_recipe(values: Tensor, seed: int) -> Json:
    """Return the recipe that resembles a tensor.

    Args:
        values: Any shape and dtype, on any device; only read.
        seed: Seed of the synthetic values.
    """
    if values.numel() == 0:
        return default_recipe(values.dtype, seed)
    if values.dtype == torch.bool:
        return {"kind": "bernoulli", "seed": seed, "share": values.double().mean().item()}
    if values.is_complex():
        return _measure_floats(torch.view_as_real(values.resolve_conj()), seed)
    if values.is_floating_point():
        return _measure_floats(values, seed)
    wide = values.to(torch.int64)  # unsigned types have no min and max of their own
    return {
        "kind": "uniform",
        "seed": seed,
        "low": int(wide.min().item()),
        "high": int(wide.max().item()),
    }


def _measure_floats(values: Tensor, seed: int) -> Json:
    values = values if values.dtype == torch.float64 else values.to(torch.float32)
    counts = {
        "nan": int(values.isnan().sum()),
        "posinf": int(values.isposinf().sum()),
        "neginf": int(values.isneginf().sum()),
    }
    finite = values[values.isfinite()] if any(counts.values()) else values
    if finite.numel() == 0:
        return {**default_recipe(torch.float32, seed), **counts}
    mean = finite.mean(dtype=torch.float64).item()
    square = torch.linalg.vector_norm(finite, dtype=torch.float64).item() ** 2 / finite.numel()
    deviation = math.sqrt(max(0.0, square - mean * mean))
    low, high = finite.min().item(), finite.max().item()
    return {**_normal(seed, mean=mean, deviation=deviation, low=low, high=high), **counts}


def _normal(seed: int, *, mean: float, deviation: float, low: float, high: float) -> Json:
    numbers = {"mean": mean, "deviation": deviation, "min": low, "max": high}
    encoded = {name: float_to_json(value) for name, value in numbers.items()}
    return {"kind": "normal", "seed": seed, **encoded, "nan": 0, "posinf": 0, "neginf": 0}


def synthesize(recipe: Mapping[str, object], numel: int, dtype: torch.dtype, where: str) -> Tensor:
    """Return the values of a recipe.

    Args:
        recipe: What `measure_recipe` or `default_recipe` returned, perhaps read from a file.
        numel: Number of elements.
        dtype: Their dtype.
        where: Names the tensor in errors.

    Returns:
        A CPU tensor of shape `[numel]`.

    Raises:
        CaseError: The recipe is malformed.
    """
    kind = member(recipe, "kind", str, where)
    if kind not in _KINDS:
        raise CaseError(f"{where}: {kind!r} is no kind of recipe; known: {', '.join(_KINDS)}")
    generator = torch.Generator().manual_seed(member(recipe, "seed", int, where) & 0xFFFFFFFF)
    return _KINDS[kind](recipe, numel, dtype, generator, where)


_Make = Callable[[Mapping[str, object], int, torch.dtype, torch.Generator, str], Tensor]


def _draw_normal(
    recipe: Mapping[str, object],
    numel: int,
    dtype: torch.dtype,
    generator: torch.Generator,
    where: str,
) -> Tensor:
    mean, deviation, low, high = (
        float_from_json(recipe.get(name), f"{where}.{name}")
        for name in ("mean", "deviation", "min", "max")
    )
    count = numel * 2 if dtype.is_complex else numel
    values = torch.empty(count, dtype=dtype.to_real() if dtype.is_complex else dtype)
    for start in range(0, count, _CHUNK):
        part = values[start : start + _CHUNK]
        bell = _bell(part.numel(), generator).mul_(deviation).add_(mean)
        part.copy_(bell.clamp_(low, high))
    _plant(values, recipe, where)
    return torch.view_as_complex(values.view(-1, 2)) if dtype.is_complex else values


def _bell(count: int, generator: torch.Generator) -> Tensor:
    """Sum of four uniforms, scaled to mean 0 and deviation 1 (float64, within +-3.5)."""
    total = torch.zeros(count, dtype=torch.float64)
    for _ in range(4):
        total.add_(torch.rand(count, dtype=torch.float64, generator=generator))
    return total.sub_(2.0).mul_(math.sqrt(3.0))


def _plant(values: Tensor, recipe: Mapping[str, object], where: str) -> None:
    """Put NaN and infinities at evenly spaced places: distinct, and the same on each load."""
    kinds = {"nan": math.nan, "posinf": math.inf, "neginf": -math.inf}
    counts = {name: member(recipe, name, int, where) for name in kinds}
    total = sum(counts.values())
    if min(counts.values()) < 0 or total > values.numel():
        raise CaseError(f"{where}: {counts} special values do not fit {values.numel()} elements")
    if total == 0:
        return
    special = [kinds[name] for name, count in counts.items() for _ in range(count)]
    places = torch.arange(total) * values.numel() // total
    values[places] = torch.tensor(special, dtype=torch.float64).to(values.dtype)


def _draw_uniform(
    recipe: Mapping[str, object],
    numel: int,
    dtype: torch.dtype,
    generator: torch.Generator,
    where: str,
) -> Tensor:
    low, high = (member(recipe, name, int, where) for name in ("low", "high"))
    if not _INT64.min <= low <= high <= _INT64.max:
        raise CaseError(f"{where}: [{low}, {high}] are no bounds of integers")
    above = min(high + 1, _INT64.max)
    values = torch.randint(low, above, (numel,), generator=generator, dtype=torch.int64)
    return values.to(dtype)


def _draw_bernoulli(
    recipe: Mapping[str, object],
    numel: int,
    dtype: torch.dtype,
    generator: torch.Generator,
    where: str,
) -> Tensor:
    share = expect(recipe.get("share"), float, f"{where}.share")
    return (torch.rand(numel, dtype=torch.float64, generator=generator) < share).to(dtype)


_KINDS: Mapping[str, _Make] = cast(
    "Mapping[str, _Make]",
    {"normal": _draw_normal, "uniform": _draw_uniform, "bernoulli": _draw_bernoulli},
)
