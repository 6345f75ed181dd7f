"""The search of a proposal, at one of three levels: which of its edits are asked, in which order.

1. `coarse`: `Monotone` and `Descent` by bisection, `Subset` only as a whole.
2. `thorough`: `Monotone` galloping from the mildest on, `Subset` by halving.
3. `single`: only the smallest edits: the mildest of a `Monotone`, the landmarks of a `Descent`,
   each atom of a `Subset` alone. Its refusals are the certificate of the result.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.proposal import Descent, GaveUp, Guesses, Monotone, Proposal, Subset
from ctk.toolkit.search.blocks import largest_subset, largest_subset_from_singles
from ctk.toolkit.search.boundaries import (
    find_integer,
    largest_true,
    strongest_or_none,
    strongest_true,
)
from ctk.toolkit.search.descents import least_landmark, least_number
from ctk.toolkit.search.questions import Answer, Search, first_true, map_choices

Questions = Generator[Edit, Answer, object]
"""Yields the next edit to ask, and is sent the answer; the result of the search is not used."""

Level = Callable[[Proposal], Questions]


def coarse(proposal: Proposal) -> Questions:
    """Ask for the cheapest big steps."""
    match proposal:
        case Guesses(edits):
            return first_true(edits)
        case Monotone(make, count, strongest_first):
            search = strongest_true(count) if strongest_first else largest_true(count)
            return map_choices(search, make)
        case Descent(make, number):
            return map_choices(least_number(number), make)
        case Subset(make, atoms):
            return map_choices(first_true([tuple(atoms)] if atoms else []), make)
        case GaveUp():
            return first_true(())


def thorough(
    proposal: Proposal, subset: Callable[[Sequence[Any]], Search[Any, Any]] = largest_subset
) -> Questions:
    """Ask until no block of edits, and no single one of a block, is known to be possible."""
    match proposal:
        case Guesses(edits):
            return first_true(edits)
        case Monotone(make, count, strongest_first):
            search = strongest_or_none(count) if strongest_first else find_integer(count)
            return map_choices(search, make)
        case Descent(make, number):
            return map_choices(strongest_or_none(number - 1), lambda rung: make(number - rung))
        case Subset(make, atoms):
            return map_choices(subset(atoms), make)
        case GaveUp():
            return first_true(())


def single(proposal: Proposal) -> Questions:
    """Ask for each of the smallest edits."""
    match proposal:
        case Guesses() | GaveUp():
            return first_true(())
        case Monotone(make, count, _):
            return map_choices(_boundary(count), make)
        case Descent(make, number):
            return map_choices(least_landmark(number), make)
        case Subset(make, atoms):
            return map_choices(largest_subset_from_singles(atoms), make)


def _boundary(count: int) -> Search[int, None]:
    """Ask for the mildest rung that exists: if it is refused, so are the stronger ones."""
    for rung in range(1, count + 1):
        answer = yield rung
        if answer:
            yield from map_choices(find_integer(count - rung), lambda more, rung=rung: rung + more)
        if answer is not None:
            return
