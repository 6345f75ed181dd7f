"""Cover the elements of compiled values that eager reaches in other runs (graph/excuses.py)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ctk.compiler.errors import LostAccelerator
from ctk.compiler.observe import first_line
from ctk.repro_templates.numbers.errors import FACTOR, Mismatch, as_dense

RUNS = 16
"""Most runs with other roundings: of three equally likely integers one is missed in 0.2 %."""

FEWEST = 3
"""Runs after which the answer may be known."""

ENOUGH = 6
"""Runs after which an element that has not moved is taken to stay."""

HOPELESS = 100.0
"""A value so many times further away than it may be is not covered by more runs."""

SMALL_SHARE = 0.5
"""Ten times the spread, as a share of a number, below which roundings act linearly."""

SMALL = 3.0
"""Multiple of the spread that a linear number may lie outside of it: about ten deviations."""

STILL = 0.01
"""A number that moves by a smaller share of its size comes nowhere near infinity."""

SOME = 4
"""Number of different integers from which on those between them are as likely."""


@dataclass(frozen=True, slots=True)
class Covered:
    """Compiled values, covered by runs of eager.

    Attributes:
        covered: The values, with eager's elements where its runs reach as far.
        left: Their mismatches.
        runs: Eager's values in its runs, by name.
    """

    covered: Mapping[str, object]
    left: tuple[Mismatch, ...]
    runs: Mapping[str, Sequence[object]]


def cover_values(
    values: Mapping[str, tuple[object, object]],
    runs: Iterable[Mapping[str, object]],
    compare: Callable[[Mapping[str, object]], tuple[Mismatch, ...]],
) -> Covered | None:
    """Cover values by runs of eager until they agree, or more runs cannot help.

    Args:
        values: Eager's value and the compiled one, by name.
        runs: Eager's values in each run; it is made when it is needed.
        compare: Returns the mismatches of covered values.

    Returns:
        None if there are fewer than FEWEST runs.
    """
    seen: dict[str, list[object]] = {name: [] for name in values}
    result = None
    for count, run in enumerate(runs, 1):
        for name, others in seen.items():
            others.append(run.get(name))
        if count < FEWEST:
            continue
        covered = {name: cover(*pair, seen[name]) for name, pair in values.items()}
        result = Covered(covered, compare(covered), seen)
        lost = (is_hopeless(*values[m.name], seen[m.name]) for m in result.left)
        if not result.left or (count >= ENOUGH and all(lost)):
            break
    return result


def cover(eager: object, compiled: object, seen: Sequence[object]) -> object:
    """Return a compiled value with eager's elements where runs of eager reach as far."""
    e, c = as_numbers(eager), as_numbers(compiled)
    runs = [each for each in map(as_numbers, seen) if each is not None and fits(each, e)]
    if e is None or c is None or not fits(c, e) or not runs:
        return compiled
    mask = reach(e, c, torch.stack([e, *runs]))
    if not isinstance(compiled, Tensor):
        return eager if bool(mask.all()) else compiled
    assert isinstance(eager, Tensor)
    own, other = as_dense(eager), as_dense(compiled)
    if own.dtype.is_complex:
        mask = mask.all(-1)
    return torch.where(mask.to(own.device), own, other)


def reach(eager: Tensor, compiled: Tensor, seen: Tensor) -> Tensor:
    """Return which elements of a compiled value eager reaches.

    Args:
        seen: Eager's values, its first run included, stacked.
    """
    is_among = ((seen == compiled) | (seen.isnan() & compiled.isnan())).any(0)
    low, high, width = spread_of(seen)
    if not eager.dtype.is_floating_point:
        kinds = (seen.sort(0).values.diff(dim=0) != 0).sum(0) + 1
        return is_among | ((kinds >= SOME) & (compiled >= low - width) & (compiled <= high + width))
    most = FACTOR * width
    is_linear = most < SMALL_SHARE * torch.minimum(low.abs(), high.abs())
    most = torch.where(is_linear, SMALL * width, most)
    near = (compiled >= low - most) & (compiled <= high + most)
    beyond = ((seen == torch.inf).any(0) & (compiled >= low)) | (
        (seen == -torch.inf).any(0) & (compiled <= high)
    )
    moves = ~((seen == seen[0]) | (seen.isnan() & seen[0].isnan())).all(0)
    small, large, apart = spread_of(seen.reciprocal())  # infinity is 0 there
    is_divided = moves & (small <= FACTOR * apart) & (large >= -FACTOR * apart)
    divided = is_divided & compiled.isinf()
    return is_among | divided | (compiled.isfinite() & (near | (beyond & seen.isfinite().any(0))))


def spread_of(seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the smallest and the largest finite number of each element, and their distance.

    Where finite numbers come and go, the largest of them is the distance.
    """
    if not seen.dtype.is_floating_point:
        low, high = seen.amin(0), seen.amax(0)
        return low, high, high - low
    finite = seen.isfinite()
    low = torch.where(finite, seen, torch.inf).amin(0)
    high = torch.where(finite, seen, -torch.inf).amax(0)
    size = torch.maximum(low.abs(), high.abs())
    width = torch.where(finite.all(0), high - low, torch.maximum(high - low, size))
    return low, high, torch.where(finite.any(0), width, 0.0)


def is_hopeless(eager: object, compiled: object, seen: Sequence[object]) -> bool:
    """Return whether more runs will not reach a compiled value: eager hardly moves most of it.

    Most of it: of the elements that differ from eager's. A few of them move in later runs only.
    """
    e, c = as_numbers(eager), as_numbers(compiled)
    runs = [each for each in map(as_numbers, seen) if each is not None and fits(each, e)]
    if e is None or c is None or not fits(c, e) or not runs:
        return True
    stacked = torch.stack([e, *runs])
    is_open = ~reach(e, c, stacked)
    is_other = ~((c == e) | (c.isnan() & e.isnan()))
    low, high, width = spread_of(stacked)
    if not e.dtype.is_floating_point:
        return _are_most((width == 0) & is_open, is_other)
    moves = (width > 0) | ~stacked.isfinite().all(0)
    far = (c - e).abs() > HOPELESS * FACTOR * width
    still = width < STILL * torch.maximum(low.abs(), high.abs())
    lost = torch.where(stacked.isfinite().all(0), torch.where(c.isfinite(), far, still), ~moves)
    return _are_most(lost & is_open, is_other)


def _are_most(lost: Tensor, of: Tensor) -> bool:
    return 2 * int(lost.sum()) > int(of.sum())


_WIDE = {float: torch.float64, complex: torch.complex128}


def as_numbers(value: object) -> Tensor | None:
    """Return a value as float64 or int64 numbers on the CPU; None if it has none.

    Complex numbers get a last dimension of two.

    Raises:
        LostAccelerator: The kernel that computes it has broken CUDA.
    """
    if isinstance(value, bool | int | float | complex):
        try:
            value = torch.tensor(value, dtype=_WIDE.get(type(value)))
        except ValueError:  # an int of more than 64 bits
            return None
    if not isinstance(value, Tensor) or value.is_meta or value.numel() == 0:
        return None
    try:
        dense = as_dense(value).cpu()
    except torch.AcceleratorError as error:
        raise LostAccelerator(first_line(error)) from error
    except Exception:  # raised by code of the user, whose tensor class it is
        return None
    if dense.is_complex():
        return torch.view_as_real(dense.to(torch.complex128).resolve_conj())
    return dense.to(torch.float64 if dense.is_floating_point() else torch.int64)


def fits(value: Tensor | None, other: Tensor | None) -> bool:
    """Return whether two values have one shape and dtype; not if one is missing."""
    if value is None or other is None:
        return False
    return value.shape == other.shape and value.dtype == other.dtype
