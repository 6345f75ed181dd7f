"""Boundary searches: the number up to which, or from which on, a predicate is true.

Source: `find_integer` and the demand that progress be deterministic are from Hypothesis (MacIver
and Donaldson, Test-Case Reduction via Test-Case Generation, ECOOP 2020).
"""

from collections.abc import Iterable
from typing import TypeVar

from ctk.toolkit.search.questions import Answer, Search, map_choices

Absent = TypeVar("Absent", int, None)


def find_integer(count: int) -> Search[int, int]:
    """Return an `n <= count` that is true, `n + 1` being not, in about 2 log2(n) questions.

    0 is assumed and small results are found first: when nothing is possible that costs one
    question. None (no such candidate) lets the search go on to the next larger one.
    """
    best = low = 0
    high = 1
    while high <= count and (answer := (yield high)) is not False:
        best = high if answer else best
        low, high = high, high + 1 if high < 4 else high * 2
    while low + 1 < high:
        middle = (low + high) // 2
        answer = (yield middle) if middle <= count else False
        best = max(best, middle) if answer else best
        low, high = (middle, high) if answer is not False else (low, middle)
    return best


def largest_true(count: int) -> Search[int, int]:
    """Return the largest `n <= count` that is true, if monotone, in log2(count) questions.

    0 is assumed. If a candidate does not exist (None), the next smaller one replaces it. If the
    answers are not monotone, the result is still true (or 0).
    """
    best, low, high = 0, 0, count + 1
    while low + 1 < high:
        middle = rung = (low + high) // 2
        answer = yield rung
        while answer is None and rung - 1 > low:
            rung -= 1
            answer = yield rung
        best = max(best, rung) if answer else best
        low, high = (low, rung) if answer is False else (middle, high)
    return best


def smallest_true(count: int) -> Search[int, int]:
    """Return the smallest `n <= count` that is true, if monotone; `count` is assumed, 0 refused.

    `n - 1` is not true: the result is a boundary even if the answers are not monotone.
    """
    low, high = 0, count
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if (yield middle) else (middle, high)
    return high


def verify_boundary(count: int) -> Search[int, int | None]:
    """Return the number of `smallest_true`; None if 0 is true, or `count` is not."""
    if count <= 0 or (yield 0) or not (yield count):
        return None
    return (yield from smallest_true(count))


def strongest_true(count: int) -> Search[int, int]:
    """Return the number of `largest_true`; `count` is asked first: one question if it is true."""
    strongest, answer = yield from _first_answered(range(count, 0, -1), 0)
    return (yield from largest_true(strongest - 1)) if answer is False else strongest


def strongest_or_none(count: int) -> Search[int, int]:
    """Return the number of `strongest_true`, in two questions if nothing is possible."""
    strongest, answer = yield from _first_answered(range(count, 0, -1), 0)
    if answer is not False:
        return strongest
    mildest, answer = yield from _first_answered(range(1, strongest), 0)
    if not answer:
        return 0
    more = map_choices(largest_true(strongest - mildest - 1), lambda more: mildest + more)
    return mildest + (yield from more)


def _first_answered(
    numbers: Iterable[int], absent: Absent
) -> Search[int, tuple[int | Absent, Answer]]:
    """Return the first number that has an answer, and the answer; `absent` and None if none has."""
    for number in numbers:
        answer = yield number
        if answer is not None:
            return number, answer
    return absent, None


def find_change(count: int) -> Search[int, tuple[int | None, int | None]]:
    """Return the neighbours at which a predicate over `range(count)` becomes true, if monotone.

    Numbers without an answer (None) are skipped, so that some may remain between the neighbours.
    The first number that has an answer, and the last, are asked first, the last before the first.

    Returns:
        The last number that is not true, and the first that is. One of them is None if all answers
        are alike, or the last number is not true; both if there are no answers.
    """
    last, is_true = yield from _first_answered(range(count - 1, -1, -1), None)
    if last is None or not is_true:
        return last, None
    first, is_true = yield from _first_answered(range(last), None)
    if first is None or is_true:
        return None, last if first is None else first
    skipped: set[int] = set()
    while between := [n for n in range(first + 1, last) if n not in skipped]:
        middle = between[(len(between) - 1) // 2]
        answer = yield middle
        if answer is None:
            skipped.add(middle)
        else:
            first, last = (first, middle) if answer else (middle, last)
    return first, last
