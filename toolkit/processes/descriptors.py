"""Restore the standard streams' descriptors after user code that may close or redirect them."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

STANDARD = (0, 1, 2)


@contextmanager
def keep_standard_streams() -> Generator[None]:
    """Restore the three descriptors after the block.

    The system would give a closed one to the next opened file, which would then receive all prints.
    """
    saved: dict[int, int] = {}
    for descriptor in STANDARD:
        with suppress(OSError):  # it was closed before
            saved[descriptor] = os.dup(descriptor)
    try:
        yield
    finally:
        for descriptor, copy in saved.items():
            os.dup2(copy, descriptor)
            os.close(copy)
