"""Kernels of Triton for tests that launch none."""

import triton
import triton.language as tl


@triton.jit
def negate(x, n):
    """Negate a block."""
    i = tl.arange(0, 16)
    tl.store(x + i, -tl.load(x + i, mask=i < n), mask=i < n)


def local_kernel() -> object:
    """Return a kernel of a local scope."""

    @triton.jit
    def local(x, n):
        tl.store(x, n)

    return local
