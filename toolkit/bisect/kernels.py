"""Find the guilty kernel: those that, run in eager instead, make the case pass."""

from collections.abc import Callable, Sequence


def guilty_kernel(
    passes_without: Callable[[Sequence[str]], bool], kernels: Sequence[str]
) -> str | None:
    """Return the kernel without which alone the case passes; None when there is no such one.

    Args:
        passes_without: Compiles with these kernels run in eager, and says whether the case passes.
        kernels: Ids of all kernels of the compile, in order.
    """
    if not kernels or not passes_without(kernels):
        return None
    return next((kernel for kernel in kernels if passes_without([kernel])), None)
