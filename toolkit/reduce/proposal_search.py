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
from ctk.toolkit.search.questions import Answer, Choice, Search, first_true, map_choices

Questions = Generator[Edit, Answer, None]
"""Yields the next edit to ask, and is sent the answer."""

Level = Callable[[Proposal], Questions]


def coarse(proposal: Proposal) -> Questions:
    """Ask for the cheapest big steps."""
    match proposal:
        case Guesses(edits):
            yield from first_true(edits)
        case Monotone(make, count, strongest_first):
            search = strongest_true(count) if strongest_first else largest_true(count)
            yield from _edits(make, search)
        case Descent(make, number):
            yield from _edits(make, least_number(number))
        case Subset(make, atoms) if atoms:
            yield make(tuple(atoms))
        case _:
            pass


def thorough(
    proposal: Proposal, subset: Callable[[Sequence[Any]], Search[Any, Any]] = largest_subset
) -> Questions:
    """Ask until no block of edits, and no single one of a block, is known to be possible."""
    match proposal:
        case Guesses(edits):
            yield from first_true(edits)
        case Monotone(make, count, strongest_first):
            search = strongest_or_none(count) if strongest_first else find_integer(count)
            yield from _edits(make, search)
        case Descent(make, number):
            rungs = strongest_or_none(number - 1)
            yield from _edits(lambda rung: make(number - rung), rungs)
        case Subset(make, atoms):
            yield from _edits(make, subset(atoms))
        case GaveUp():
            pass


def single(proposal: Proposal) -> Questions:
    """Ask for each of the smallest edits."""
    match proposal:
        case Guesses() | GaveUp():
            pass
        case Monotone(make, count, _):
            yield from _edits(make, _boundary(count))
        case Descent(make, number):
            yield from _edits(make, least_landmark(number))
        case Subset(make, atoms):
            yield from _edits(make, largest_subset_from_singles(atoms))


def _boundary(count: int) -> Search[int, None]:
    """Ask for the mildest rung that exists: if it is refused, so are the stronger ones."""
    for rung in range(1, count + 1):
        answer = yield rung
        if answer:
            yield from map_choices(find_integer(count - rung), lambda more, rung=rung: rung + more)
        if answer is not None:
            return


def _edits(make: Callable[[Any], Edit], search: Search[Choice, Any]) -> Questions:
    yield from map_choices(search, make)
