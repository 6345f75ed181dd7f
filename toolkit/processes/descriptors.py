"""The descriptors of the standard streams around code of a user that may close or redirect them.

What it does not do: Python's own stream objects (`toolkit/cli/shell/streams.py`).
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

STANDARD = (0, 1, 2)


@contextmanager
def keep_standard_streams() -> Generator[None]:
    """Give the three descriptors back as they were, whatever the block does to them.

    One that stays closed would be given to the next file that is opened, and what is printed would
    end there.
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
