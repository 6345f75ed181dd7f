"""Searches over abstract candidates, in as few questions as possible.

Pure: nothing here knows of graphs or of torch. A search is a generator: it yields what it wants to
know of and is sent True (the candidate still fails), False (it does not) or None (there is no such
candidate, so nothing was asked). It depends on nothing but the answers, so that it can be played
again with answers that somebody assumes: that is how questions are asked ahead (`lookahead.py`).

    def find_5(count):             >>> answered(find_integer(9), lambda n: n <= 5)
        yields 1 2 3 4 8 6 5           5

Source: `find_integer` and the demand that progress be deterministic are from Hypothesis (MacIver
and Donaldson, Test-Case Reduction via Test-Case Generation, ECOOP 2020); the halving of blocks is
ddmin (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002). Unlike in
ddmin, a block that was refused is split in two and never asked again with another partition, so
that k needed elements of n cost about 2 k log2(n / k) questions.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

Answer = bool | None
Choice = TypeVar("Choice")
Atom = TypeVar("Atom")
Result = TypeVar("Result")
Other = TypeVar("Other")

Search = Generator[Choice, Answer, Result]

SMALL_STEP = 64
"""Divisors up to here are steps by which a number is made smaller (`landmarks`)."""

LARGEST_PRIME = 1 << 16
"""Up to here primes are looked for; a number that is larger than its square counts as one."""


def answered(search: Search[Choice, Result], is_true: Callable[[Choice], Answer]) -> Result:
    """Run a search with whoever answers; return its result."""
    try:
        choice = next(search)
        while True:
            choice = search.send(is_true(choice))
    except StopIteration as end:
        return end.value


def first_true(choices: Sequence[Choice]) -> Search[Choice, None]:
    """Ask one choice after the other until one is true."""
    for choice in choices:
        if (yield choice):
            return


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

    0 is assumed. When a candidate does not exist (None) the next smaller one stands in for it. If
    the answers are not monotone, the result still is one that was true (or 0).
    """
    best, low, high = 0, 0, count + 1
    while low + 1 < high:
        middle = probe = (low + high) // 2
        answer = yield probe
        while answer is None and probe - 1 > low:
            probe -= 1
            answer = yield probe
        best = max(best, probe) if answer else best
        low, high = (low, probe) if answer is False else (middle, high)
    return best


def strongest_true(count: int) -> Search[int, int]:
    """Return what `largest_true` does, but ask for `count` itself first: one question if it is."""
    for strongest in range(count, 0, -1):
        answer = yield strongest
        if answer:
            return strongest
        if answer is False:
            return (yield from largest_true(strongest - 1))
    return 0


def landmarks(number: int) -> list[int]:
    """Return the smaller numbers at which something may be true again, the least first.

    A kernel may need a multiple of 8, or an odd number: what is true of 64 and of 8 is not of 63.
    They are 1. the powers of two, 2. the number less each of these, 3. the number divided by each
    of its primes, 4. the number less each of its divisors up to 64: about 2 log2(number) in all.

    >>> landmarks(12)
    [1, 2, 4, 6, 8, 9, 10, 11]
    """
    powers = {1 << bit for bit in range((number - 1).bit_length())}
    steps = powers | {each for each in range(1, SMALL_STEP + 1) if number % each == 0}
    quotients = {number // prime for prime in _primes(number)}
    found = powers | quotients | {number - step for step in steps}
    return sorted(each for each in found if 0 < each < number)


def _primes(number: int) -> Iterator[int]:
    """Yield the primes that divide a number: those up to `LARGEST_PRIME`, and what is left."""
    prime = 2
    while prime * prime <= number and prime <= LARGEST_PRIME:
        if number % prime == 0:
            yield prime
        while number % prime == 0:
            number //= prime
        prime += 1
    if number > 1:
        yield number


def least_true(number: int) -> Search[int, int]:
    """Return a number from 1 on that is true; `number` itself is assumed to be.

    Asked for: 1; the powers of two, by bisection; what lies between the least of them that is true
    and the next one below, by bisection. So the least number is found where all above it are true
    too, or the multiples of some power of two. Where nothing of that is true, the landmarks.
    """
    low, best = 0, number
    for low in range(1, number):
        answer = yield low
        if answer:
            return low
        if answer is False:
            break
    powers = [1 << bit for bit in range(number.bit_length())]
    while between := [each for each in powers if low < each < best]:
        middle = between[(len(between) - 1) // 2]
        answer = yield middle
        if answer is None:
            powers.remove(middle)
        low, best = (middle if answer is False else low), (middle if answer else best)
    best -= yield from mapped(largest_true(best - low - 1), lambda rung, top=best: top - rung)
    return best if best < number else (yield from least_landmark(number))


def least_landmark(number: int) -> Search[int, int]:
    """Return a number, at most the given one, of which no landmark is true."""
    refused: set[int] = set()
    while True:
        for each in landmarks(number):
            if each in refused:
                continue
            if (yield each):
                number = each
                break
            refused.add(each)
        else:
            return number


def refused_or_strongest(count: int) -> Search[int, int]:
    """Return what `strongest_true` does, in two questions where nothing is possible.

    The mildest is asked for second: right where an earlier search has been at the boundary already.
    """
    for strongest in range(count, 0, -1):
        answer = yield strongest
        if answer:
            return strongest
        if answer is False:
            for mildest in range(1, strongest):
                answer = yield mildest
                if answer is not None:
                    return (yield from _between(mildest, strongest)) if answer else 0
            return 0
    return 0


def mapped(
    search: Search[Choice, Result], make: Callable[[Choice], Other]
) -> Search[Other, Result]:
    """Return a search that asks for what `make` makes of each choice."""
    try:
        choice = next(search)
        while True:
            choice = search.send((yield make(choice)))
    except StopIteration as end:
        return end.value


def _between(low: int, high: int) -> Search[int, int]:
    """Return the largest true choice from `low` (true) on below `high` (not)."""
    return low + (yield from mapped(largest_true(high - low - 1), lambda more: low + more))


def largest_subset(atoms: Sequence[Atom]) -> Search[tuple[Atom, ...], tuple[Atom, ...]]:
    """Return atoms, in their order, that are true together and that no untried block enlarges.

    Blocks are tried whole, then halved down to single atoms; what was accepted stays accepted.

    Args:
        atoms: What may be chosen; neighbours are likely to be needed or useless together. Read by
            position only: it may be as long as a `range`.
    """
    chosen: list[int] = []
    if atoms:
        yield from _take(atoms, chosen, range(len(atoms)), is_refused=False)
    return _picked(atoms, chosen)


def each_alone(atoms: Sequence[Atom]) -> Search[tuple[Atom, ...], tuple[Atom, ...]]:
    """Return atoms that are true together, every other one having been refused alone.

    For atoms that are most likely needed. After one that was accepted the next two, four, ... are
    tried at once, and halved where they are refused.
    """
    chosen: list[int] = []
    place, width = 0, 1
    while place < len(atoms):
        block = range(place, min(place + width, len(atoms)))
        is_taken = yield from _take(atoms, chosen, block, is_refused=False)
        place, width = block.stop, 2 * width if is_taken else 1
    return _picked(atoms, chosen)


def _take(
    atoms: Sequence[Atom], chosen: list[int], block: range, *, is_refused: bool
) -> Search[tuple[Atom, ...], bool]:
    """Take what can be taken of a block that may be known to be refused whole; is it all?"""
    if not is_refused and (yield _picked(atoms, [*chosen, *block])):
        chosen.extend(block)
        return True
    if len(block) == 1:
        return False
    middle = len(block) // 2
    is_left_taken = yield from _take(atoms, chosen, block[:middle], is_refused=False)
    # With the left half taken, the right half whole is the question that was just refused.
    is_right_taken = yield from _take(atoms, chosen, block[middle:], is_refused=is_left_taken)
    return is_left_taken and is_right_taken


def _picked(atoms: Sequence[Atom], places: Sequence[int]) -> tuple[Atom, ...]:
    return tuple(atoms[place] for place in sorted(places))
