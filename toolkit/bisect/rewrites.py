"""Find the guilty rewrite by fuel: the smallest number of rewrites with which the case fails.

For failures that the values of the steps do not show: a pass that leaves right values with wrong
types, a code generator that stumbles over what a pass left. Costs a compile per question.
"""

from collections.abc import Callable


def smallest_failing(fails: Callable[[int], bool], total: int) -> int | None:
    """Return the smallest fuel in 1..total for which `fails`, which holds for `total`, not for 0.

    Invariant: `fails(low)` is False and `fails(high)` is True; so the answer is a true boundary
    even where `fails` is not monotone.

    Args:
        fails: Compiles with so much fuel and says whether the case fails in the same way.
        total: Rewrites of the whole compile.

    Returns:
        The boundary, or None when there is none: it fails without any rewrite, or not with all of
            them.
    """
    if total <= 0 or fails(0) or not fails(total):
        return None
    low, high = 0, total
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high
