"""Find the cause of a mismatch outside of the compiler: ask eager again, under other conditions.

Two questions, each a few more eager runs (`Variation`):

* ill-conditioned: eager with other roundings (graph/rounding.py). A wrong element is covered if
  eager's own values there, from run to run, reach as far as the compiled value. For floats: FACTOR
  times their spread; where that is a small share of the number, SMALL times, since small effects of
  many roundings add up and have no long tail. For NaN, infinities and integers one of the runs has
  it as well.
* uninitialized: eager with other contents of fresh memory (graph/fresh_memory.py). An element
  that follows the contents, and is the same again with the same ones, is covered: no operator has
  written it.

The judgement goes by element. A covered element of the compiled value is replaced by eager's, and
the values are compared again: a wrong element beside covered ones is still a failure.

    eager      3.7e7  2.0   argmax 3        roundings  inf, 1.9e7 | 2.0, 2.0 | 3, 7, 3
    compiled   inf    2.5   argmax 7        covered    yes        | no       | yes
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ctk.compiler.errors import LostAccelerator
from ctk.compiler.observe import first_line
from ctk.repro_templates.graph.covering import RUNS, as_numbers, cover_values, fits
from ctk.repro_templates.graph.documented import (
    AUTOCAST,
    CHECKPOINT,
    Documented,
    recomputing_once,
)
from ctk.repro_templates.graph.fresh_memory import CONTENTS, filled_memory
from ctk.repro_templates.graph.rounding import random_rounding
from ctk.repro_templates.graph.running import Run, autocast_in_backward
from ctk.repro_templates.numbers.compare import compare_runs
from ctk.repro_templates.numbers.errors import Mismatch, as_dense, identical

ALL_DIGITS = 0.25
"""Relative error of a value of eager, as a whole, above which none of its digits is correct."""


@dataclass(frozen=True, slots=True)
class Variation:
    """The way in which eager is run once more.

    Attributes:
        seed: The seed is raised by so much.
        rounding: Number of the random roundings, from 1; 0: eager's own.
        contents: Index of the contents of fresh memory; None: as they are.
        recomputes: Whether the recomputation of a checkpoint updates statistics.
        autocasts_backward: Whether backward runs under the autocast of forward.
        numpy_seed: The seed of numpy is raised by so much.
        only: Place of the only allocation with contents, in the order of the run; None: all.
        repeat: Number of the repetition of an equal run; 0: the first one.
    """

    seed: int = 0
    rounding: int = 0
    contents: int | None = None
    only: int | None = None
    recomputes: bool = True
    autocasts_backward: bool = False
    numpy_seed: int = 0
    repeat: int = 0


NO_VARIATION = Variation()

Vary = Callable[[Variation], Run]
"""Runs eager once more; may raise."""


def varied(variation: Variation, allocated: list[str]) -> AbstractContextManager[None]:
    """Return the context of a varied run; the allocating operators are added to `allocated`."""
    if variation.contents is not None:
        return filled_memory(variation.contents, allocated, variation.only)
    if not variation.recomputes:
        return recomputing_once()
    if variation.autocasts_backward:
        return autocast_in_backward()
    return random_rounding(variation.rounding) if variation.rounding else nullcontext()


def try_variation(vary: Vary, variation: Variation) -> Run | None:
    """Run eager under other conditions; None if the program raises then.

    Raises:
        LostAccelerator: A kernel has broken CUDA for this process, e.g. by an index out of range.
    """
    try:
        return vary(variation)
    except torch.AcceleratorError as error:
        raise LostAccelerator(first_line(error)) from error
    except Exception:
        return None


@dataclass(frozen=True, slots=True)
class Difference:
    """Two runs that differ.

    Attributes:
        compiled: The compiled run, with eager's value for each covered element.
        mismatches: The mismatches without an explanation so far.
        exact: The float64 run, if there is one, with eager's value for each covered element that
            float64 does not determine.
    """

    eager: Run
    compiled: Run
    mismatches: tuple[Mismatch, ...]
    exact: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class Excuse:
    """Another cause than the compiler, for a part of a difference.

    Attributes:
        rest: The difference without that part.
        detail: The cause, with its figures.
    """

    rest: Difference
    detail: str


def vary_rounding(difference: Difference, vary: Vary) -> Excuse | None:
    """Explain mismatches in numbers by other roundings of eager; None if all are left."""
    eager, compiled, found = difference.eager, difference.compiled, difference.mismatches
    names = list(dict.fromkeys(mismatch.name for mismatch in found))
    values = {name: (eager.values.get(name), compiled.values.get(name)) for name in names}
    varied_runs = (try_variation(vary, Variation(rounding=number)) for number in range(1, RUNS + 1))

    def patch(covered: Mapping[str, object]) -> Run:
        return replace(compiled, values={**compiled.values, **covered})

    def compare(covered: Mapping[str, object]) -> tuple[Mismatch, ...]:
        compared = compare_runs(eager.values, patch(covered).values, difference.exact)
        return tuple(mismatch for mismatch in compared if mismatch.name in values)

    runs = (run.values for run in varied_runs if run is not None)
    seen = cover_values(values, runs, compare)
    if seen is None or seen.left == found:
        return None
    gone = [m for m in found if m.name not in {each.name for each in seen.left}] or found
    first = gone[0]
    detail = describe_spread(first, *values[first.name], seen.runs[first.name])
    rest = replace(difference, compiled=patch(seen.covered), mismatches=seen.left)
    return Excuse(rest, detail)


def vary_memory(difference: Difference, vary: Vary) -> Excuse | None:
    """Explain mismatches that follow the contents of fresh memory; None if none does.

    None as well if eager differs from run to run with equal contents: then chance may move it.
    """
    eager, compiled, exact = difference.eager, difference.compiled, difference.exact
    runs: dict[int, Run] = {}
    for contents in range(len(CONTENTS)):
        run = try_variation(vary, Variation(contents=contents))
        if run is None:
            continue
        if not run.allocated:
            return None
        runs[contents] = run
    if len(runs) < 2:
        return None
    masks = _follow_all(eager.values, [*runs.values()])
    if masks.keys().isdisjoint(mismatch.name for mismatch in difference.mismatches):
        return None
    contents, first = next(iter(runs.items()))
    again = try_variation(vary, Variation(contents=contents, repeat=1))
    if again is None or compare_runs(first.values, again.values):
        return None
    chance = _follow_all(masks, [first, again])
    masks = {name: mask & ~chance[name] if name in chance else mask for name, mask in masks.items()}
    followed = [name for name, mask in masks.items() if bool(mask.any())]
    name = next((m.name for m in difference.mismatches if m.name in followed), None)
    if name is None:
        return None
    values = {each: _replaced(each, eager, compiled.values, mask) for each, mask in masks.items()}
    patched = replace(compiled, values={**compiled.values, **values})
    if exact is not None:
        known = {each: mask for each, mask in masks.items() if each in exact}
        settled = {each: _replaced(each, eager, exact, mask) for each, mask in known.items()}
        exact = {**exact, **settled}
    left = compare_runs(eager.values, patched.values, exact)
    count, total = int(masks[name].sum()), masks[name].numel()
    where = _find_allocation(name, [*runs.values()], vary)
    detail = f"{count} of {total} elements of {name} are memory of {where} that is never written"
    return Excuse(Difference(eager, patched, left, exact), detail)


def _follow_all(names: Iterable[str], runs: Sequence[Run]) -> dict[str, Tensor]:
    """Return which elements differ between the runs, for each value that has one."""
    masks = {name: _follow(name, runs) for name in names}
    return {name: mask for name, mask in masks.items() if mask is not None and bool(mask.any())}


def _follow(name: str, runs: Sequence[Run]) -> Tensor | None:
    """Return which elements of a value differ between the runs; None if it has no elements."""
    values = [as_numbers(run.values.get(name)) for run in runs]
    first = values[0]
    if first is None:
        return None
    others = [each for each in values[1:] if each is not None and fits(each, first)]
    if len(others) != len(values) - 1:
        return None
    same = [(each == first) | (each.isnan() & first.isnan()) for each in others]
    return ~torch.stack(same).all(0)


def _replaced(name: str, eager: Run, values: Mapping[str, object], mask: Tensor) -> object:
    """Return a value, compiled or in float64, with eager's elements where the mask is set."""
    own, other = eager.values[name], values.get(name)
    if not (isinstance(own, Tensor) and isinstance(other, Tensor)) or own.shape != other.shape:
        return own if bool(mask.all()) and type(own) is type(other) else other
    if own.is_complex():
        mask = mask.any(-1)
    dense, theirs = as_dense(own), as_dense(other)
    if (own.is_floating_point(), own.is_complex()) != (
        theirs.is_floating_point(),
        theirs.is_complex(),
    ):
        return other
    return torch.where(mask.to(own.device), dense.to(theirs.dtype), theirs)


def _find_allocation(name: str, runs: Sequence[Run], vary: Vary) -> str:
    """Return the operator whose memory a value shows."""
    names = runs[0].allocated
    if len(set(names)) == 1:
        return names[0]
    for place, operator in enumerate(names):
        first, second = (
            try_variation(vary, Variation(contents=index, only=place)) for index in (0, 1)
        )
        mask = _follow(name, [first, second]) if first and second else None
        if mask is not None and bool(mask.any()):
            return operator
    return ", ".join(dict.fromkeys(names))


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition under which eager shows a documented difference.

    Attributes:
        starts: Beginnings of the names of values that may differ.
        is_exact: Whether the float64 run measures the values under the condition too.
    """

    documented: Documented
    variation: Variation
    starts: tuple[str, ...]
    is_exact: bool


CONDITIONS = (
    Condition(CHECKPOINT, Variation(recomputes=False), ("in", "held"), is_exact=False),
    Condition(AUTOCAST, Variation(autocasts_backward=True), ("grad_",), is_exact=True),
)


def explain_by_documentation(
    condition: Condition, difference: Difference, vary: Vary
) -> Excuse | None:
    """Explain mismatches that vanish under a condition of eager; None if all remain."""
    eager, compiled, found = difference.eager, difference.compiled, difference.mismatches
    names = {mismatch.name for mismatch in found}
    if not any(name.startswith(condition.starts) for name in names):
        return None
    other = try_variation(vary, condition.variation)
    if other is None:
        return None
    same = [name for name in names if identical(eager.values.get(name), other.values.get(name))]
    truth = difference.exact if condition.is_exact else None
    left = [m for m in compare_runs(other.values, compiled.values, truth) if m.name in names]
    left += [m for m in found if m.name in same]
    if len({m.name for m in left}) == len(names):
        return None
    gone = {name: eager.values[name] for name in names - {m.name for m in left}}
    patched = replace(compiled, values={**compiled.values, **gone})
    kept = tuple(m for m in found if m.name not in gone)
    rest = replace(difference, compiled=patched, mismatches=kept)
    return Excuse(rest, str(condition.documented))


def describe_wrong_digits(difference: Difference) -> str:
    """Return which value that differs has no correct digit in eager; empty if all have one."""
    exact = difference.exact or {}
    for name in dict.fromkeys(mismatch.name for mismatch in difference.mismatches):
        own, truth = as_numbers(difference.eager.values.get(name)), as_numbers(exact.get(name))
        if own is None or truth is None or own.shape != truth.shape:
            continue
        share = _relative_error(own.double(), truth.double())
        if share > ALL_DIGITS:
            shown = f"{share:.0%} of" if share < 10 else f"{share:.3g} times"
            return f"eager's {name} is {shown} its own size away from the float64 run"
    return ""


def _relative_error(value: Tensor, exact: Tensor) -> float:
    """Return the error of the finite elements, as a share of their size in float64."""
    known = value.isfinite() & exact.isfinite()
    error, size = (float(each[known].norm()) for each in (value - exact, exact))
    return error / size if size else math.inf if error else 0.0


def describe_spread(
    found: Mismatch, eager: object, compiled: object, seen: Sequence[object]
) -> str:
    """Describe how far eager moves and how far the compiled value is, at the worst element."""
    e, c = as_numbers(eager), as_numbers(compiled)
    assert e is not None and c is not None
    runs = [each for each in map(as_numbers, seen) if each is not None and fits(each, e)]
    index = found.worst_index or ()
    at = index if len(index) == e.dim() else (0,) * e.dim()
    values = [float(each[at]) for each in runs]
    where = f"{found.name}{list(at)}" if at else found.name
    low, high = min(values), max(values)
    nans = sum(value != value for value in values)
    finite = [value for value in values if value == value]
    low, high = (min(finite), max(finite)) if finite else (low, high)
    span = f"between {low:.6g} and {high:.6g}" if finite else "to NaN"
    span += f", {nans} times to NaN" if nans and finite else ""
    return (
        f"{len(runs)} other roundings of its operators move eager's {where} {span};"
        f" eager gives {float(e[at]):.6g}, the compiled program {float(c[at]):.6g}"
    )
