"""Descents: follow smaller candidates, none of which need be true because another one is."""

from collections.abc import Callable, Iterable, Iterator

from ctk.toolkit.search.boundaries import largest_true
from ctk.toolkit.search.questions import Choice, Search, map_choices

SMALL_STEP = 64
"""Divisors up to this size are steps by which a number is made smaller (`landmarks`)."""

LARGEST_PRIME = 1 << 16
"""Largest prime that is looked for; a rest larger than its square counts as a prime."""


def descend(start: Choice, smaller: Callable[[Choice], Iterable[Choice]]) -> Search[Choice, Choice]:
    """Return a candidate of which no smaller one is true.

    Greedy: the first true one of `smaller(start)` is the next start.

    Args:
        start: Assumed to be true.
        smaller: Proposes smaller candidates, in the order of the questions; it must not cycle.
    """
    while True:
        for candidate in smaller(start):
            if (yield candidate):
                start = candidate
                break
        else:
            return start


def landmarks(number: int) -> list[int]:
    """Return the smaller numbers at which a predicate may be true again, the least first.

    A kernel may need a multiple of 8, or an odd number: true of 64 and of 8, not of 63. Landmarks
    are 1. the powers of two, 2. the number less each of these, 3. the number divided by each of its
    primes, 4. the number less each of its divisors up to 64: about 2 log2(number) in all.

    >>> landmarks(12)
    [1, 2, 4, 6, 8, 9, 10, 11]
    """
    powers = {1 << bit for bit in range((number - 1).bit_length())}
    steps = powers | {step for step in range(1, SMALL_STEP + 1) if number % step == 0}
    quotients = {number // prime for prime in _primes(number)}
    candidates = powers | quotients | {number - step for step in steps}
    return sorted(candidate for candidate in candidates if 0 < candidate < number)


def _primes(number: int) -> Iterator[int]:
    """Yield the primes that divide a number: those up to `LARGEST_PRIME`, and the rest."""
    prime = 2
    while prime * prime <= number and prime <= LARGEST_PRIME:
        if number % prime == 0:
            yield prime
        while number % prime == 0:
            number //= prime
        prime += 1
    if number > 1:
        yield number


def least_landmark(number: int) -> Search[int, int]:
    """Return a number, at most the given one, of which no landmark is true."""
    seen: set[int] = set()

    def unseen(number: int) -> Iterator[int]:
        for landmark in landmarks(number):
            if landmark not in seen:
                seen.add(landmark)
                yield landmark

    return (yield from descend(number, unseen))


def least_number(number: int) -> Search[int, int]:
    """Return a number from 1 on that is true; `number` itself is assumed to be.

    Questions: 1; the powers of two, by bisection; the numbers between the least true power and the
    next one below, by bisection. So the least number is found if all above it are true too, or the
    multiples of some power of two. If none of these is true, the landmarks.
    """
    low, best = 0, number
    for low in range(1, number):
        answer = yield low
        if answer:
            return low
        if answer is False:
            break
    powers = [1 << bit for bit in range(number.bit_length())]
    while between := [power for power in powers if low < power < best]:
        middle = between[(len(between) - 1) // 2]
        answer = yield middle
        if answer is None:
            powers.remove(middle)
        low, best = (middle if answer is False else low), (middle if answer else best)
    best -= yield from map_choices(largest_true(best - low - 1), lambda rung, top=best: top - rung)
    return best if best < number else (yield from least_landmark(number))
