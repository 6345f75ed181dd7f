"""Sample the stack of a working thread: the function in which it spends its time.

    with sample_stack() as samples:          every 50 ms
        compile(...)
    samples.hot_function()                   torch.utils._sympy.functions:eval

Half of the samples must be within a hot function, with any callers: two phases may both simplify
sizes. The innermost of these functions is returned.
"""

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

SECONDS = 0.05
SHARE = 0.5
"""Least share of the samples within a hot function."""

_MACHINERY = ("ctk.toolkit.", "ctk.repro_templates.", "contextlib", "threading")
_LIBRARIES = ("sympy", "mpmath", "networkx")
"""Libraries that a compiler calls: the function that calls them is the phase."""


@dataclass(slots=True)
class StackSamples:
    """The functions that were on the stack: `module:name`.

    Attributes:
        depths: For each function, its greatest depth in each sample that shows it.
    """

    count: int = 0
    depths: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add(self, functions: list[str]) -> None:
        """Add the functions of one stack, the outermost first."""
        self.count += 1
        for function, depth in {each: depth for depth, each in enumerate(functions)}.items():
            self.depths.setdefault(function, []).append(depth)

    def hot_function(self) -> str:
        """Return the innermost hot function of a compiler; "" if there is none."""
        hot = {
            function: sum(depths) / len(depths)
            for function, depths in self.depths.items()
            if len(depths) >= SHARE * self.count
            and not function.startswith((*_MACHINERY, *_LIBRARIES))
        }
        return max(hot, key=lambda function: hot[function], default="")


@contextmanager
def sample_stack() -> Generator[StackSamples]:
    """Sample the calling thread until the region ends."""
    samples, ended, thread = StackSamples(), threading.Event(), threading.get_ident()

    def sample() -> None:
        while not ended.wait(SECONDS):
            frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]  # documented
            if frame is not None:
                samples.add(_functions(frame))

    sampler = threading.Thread(target=sample, name="ctk-samples", daemon=True)
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()


def _functions(frame: FrameType | None) -> list[str]:
    """Return the functions of a stack, the outermost first."""
    found: list[str] = []
    while frame is not None:
        found.append(f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_name}")
        frame = frame.f_back
    return found[::-1]
