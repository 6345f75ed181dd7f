"""Searches over abstract candidates, in as few questions as possible.

Pure: nothing here knows of graphs or of torch. A question is a callable that answers True (the
candidate still fails), False (it does not) or None (there is no such candidate, so nothing was
asked).

Source: `find_integer` and the demand that progress be deterministic are from Hypothesis (MacIver
and Donaldson, Test-Case Reduction via Test-Case Generation, ECOOP 2020); the halving of blocks is
ddmin (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002). Unlike in
ddmin, a block that was refused is split in two and never asked again with another partition, so
that k needed elements of n cost about 2 k log2(n / k) questions.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

Answer = bool | None
Atom = TypeVar("Atom")


def find_integer(count: int, is_true: Callable[[int], Answer]) -> int:
    """Return an `n <= count` with `is_true(n)`, not `is_true(n + 1)`, in about 2 log2(n) questions.

    `is_true(0)` is assumed and small results are found first: when nothing is possible that costs
    one question. None (no such candidate) lets the search go on to the next larger one.
    """
    best = 0

    def holds(n: int) -> bool:
        nonlocal best
        answer = is_true(n) if n <= count else False
        best = max(best, n) if answer else best
        return answer is not False

    low, high = 0, 1
    while holds(high):
        low, high = high, high + 1 if high < 4 else high * 2
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return best


def largest_true(count: int, is_true: Callable[[int], Answer]) -> int:
    """Return the largest `n <= count` with `is_true(n)`, if monotone, in log2(count) questions.

    `is_true(0)` is assumed. When a candidate does not exist (None) the next smaller one stands in
    for it. If `is_true` is not monotone, the result still is one for which it was True (or 0).
    """
    best, low, high = 0, 0, count + 1
    while low + 1 < high:
        middle = probe = (low + high) // 2
        answer = is_true(probe)
        while answer is None and probe - 1 > low:
            probe -= 1
            answer = is_true(probe)
        best = max(best, probe) if answer else best
        low, high = (low, probe) if answer is False else (middle, high)
    return best


def largest_subset(
    atoms: Sequence[Atom], is_true: Callable[[tuple[Atom, ...]], Answer]
) -> tuple[Atom, ...]:
    """Return atoms, in their order, for which `is_true` and that no untried block enlarges.

    Blocks are tried whole, then halved down to single atoms; what was accepted stays accepted.

    Args:
        atoms: What may be chosen; neighbours are likely to be needed or useless together.
        is_true: The question about a choice. The empty choice is assumed to be True.
    """
    chosen: list[int] = []

    def is_accepted(block: range) -> bool:
        return bool(is_true(tuple(atoms[i] for i in sorted([*chosen, *block]))))

    def take(block: range, is_refused: bool) -> bool:
        """Take what can be taken of a block that may be known to be refused whole; is it all?"""
        if not is_refused and is_accepted(block):
            chosen.extend(block)
            return True
        if len(block) == 1:
            return False
        middle = len(block) // 2
        is_left_taken = take(block[:middle], False)
        # With the left half taken, the right half whole is the question that was just refused.
        is_right_taken = take(block[middle:], is_left_taken)
        return is_left_taken and is_right_taken

    if atoms:
        take(range(len(atoms)), False)
    return tuple(atoms[i] for i in sorted(chosen))
