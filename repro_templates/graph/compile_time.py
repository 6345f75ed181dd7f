"""Decide whether a compile is slow: its seconds, less those of an almost empty program.

A time alone proves little: a compile has costs of its own (a code generator that starts a C++
compiler), and a large graph may take long. So the first are measured with an almost empty program
of the same inputs, and must be less than half of the time:

    limit 5 s    23.1 s, 1.2 s for an almost empty program    slow
                  6.0 s, 4.9 s for an almost empty program    not slow: the compiler starts slowly

Other load of the machine only adds to a time. So a compile above the limit is repeated, and the
least time counts. Caches are emptied before each.
"""

import time
from collections.abc import Callable

from ctk.compiler.torch_compat.process.cold_caches import cold_caches

OWN_SHARE = 0.5
"""Least share of the time that the graph itself must take."""


def is_slow_compile(seconds: float, empty: float, limit: float) -> bool:
    """Return whether a compile is above its limit because of its graph."""
    return seconds >= limit and seconds - empty >= OWN_SHARE * seconds


def compile_seconds(compile_and_call: Callable[[], Callable[[], object]]) -> float:
    """Return the seconds of a compile, less those of a call.

    Args:
        compile_and_call: Compiles, calls for the first time, and returns a further call.
    """
    with cold_caches():
        started = time.perf_counter()
        call = compile_and_call()
        first = time.perf_counter() - started
        started = time.perf_counter()
        call()
        return max(0.0, first - (time.perf_counter() - started))
