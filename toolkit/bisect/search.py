"""Binary searches over the rewrites and the kernels of a compile. A question costs a compile.

For failures that the values of the steps do not show: a pass that leaves right values with wrong
types, a code generator that stumbles over what a pass left, a kernel that hides its values.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

PassesWithout = Callable[[Sequence[str]], bool]
"""Compiles without what is named, and says whether the case passes."""


def smallest_failing(fails: Callable[[int], bool], total: int) -> int | None:
    """Return the smallest fuel in 1..total for which `fails`, which holds for `total`, not for 0.

    One less does not fail: the answer is a true boundary even where `fails` is not monotone.

    Args:
        fails: Compiles with so much fuel and says whether the case fails in the same way.
        total: Rewrites of the whole compile.

    Returns:
        The boundary, or None when there is none: it fails without any rewrite, or not with all of
            them.
    """
    if total <= 0 or fails(0) or not fails(total):
        return None
    return 1 + bisect_left(range(1, total), True, key=fails)


def guilty_kernel(passes_without: PassesWithout, kernels: Sequence[str]) -> str | None:
    """Return the kernel without which alone the case passes; None when there is no such one.

    Args:
        passes_without: Compiles with these kernels run in eager, and says whether the case passes.
        kernels: Ids of all kernels of the compile, in order.
    """
    if not kernels or not passes_without(kernels):
        return None
    return _guilty_among(passes_without, kernels)


def _guilty_among(passes_without: PassesWithout, kernels: Sequence[str]) -> str | None:
    """Return the guilty one of those without all of which the case passes."""

    def passes_without_first(count: int) -> bool:
        return passes_without(kernels[:count])

    suspect = kernels[bisect_left(range(1, len(kernels)), True, key=passes_without_first)]
    return suspect if passes_without([suspect]) else None


def guilty_one(passes_without: PassesWithout, suspects: Sequence[str], few: int = 3) -> str | None:
    """Return the suspect without which alone the case passes; None when there is no such one.

    A few are asked about one by one, in the order given. Of many, likely ones first, one half is
    asked about and then, if need be, the other; the one that explains the failure is halved on.
    """
    if len(suspects) <= few:
        return next((each for each in suspects if passes_without([each])), None)
    middle = (len(suspects) + 1) // 2
    halves = (suspects[:middle], suspects[middle:])
    guilty = next((half for half in halves if passes_without(half)), None)
    return _guilty_among(passes_without, guilty) if guilty is not None else None


def smallest_subset(holds: Callable[[Sequence[T]], bool], items: Sequence[T]) -> list[T] | None:
    """Return a subset for which `holds`, and of which no element can be left out; in order.

    Blocks are left out, largest first, until single elements are tried: few questions when few are
    needed. None when it does not hold for all of them.

    Args:
        holds: Asks; costs a compile.
        items: All candidates.
    """
    if not items or not holds(items):
        return None
    kept, size = list(items), len(items)
    while size:
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + size :]
            if fewer and holds(fewer):
                kept = fewer
            else:
                start += size
        size = min(size, len(kept)) // 2
    return kept
