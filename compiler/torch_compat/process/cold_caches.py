"""Compile without the caches of earlier compiles, which would hide its time.

Read private names: `torch._inductor.utils.fresh_cache`: a new folder of compiled
code, and empty caches in this process. Sympy's cache of simplified expressions is emptied as well,
and the persistent cache of ctk is not used (`CTK_CACHE`).
"""

import os
from collections.abc import Generator
from contextlib import contextmanager

from sympy.core.cache import clear_cache


@contextmanager
def cold_caches() -> Generator[None]:
    """Empty the caches of compilers, for the time of one compile."""
    clear_cache()
    before = os.environ.get("CTK_CACHE")
    os.environ["CTK_CACHE"] = "0"
    try:
        from torch._inductor.utils import fresh_cache  # imports Dynamo

        with fresh_cache():
            yield
    finally:
        del os.environ["CTK_CACHE"]
        if before is not None:
            os.environ["CTK_CACHE"] = before
