"""Sample the stack of a working thread: the function in which it spends its time.

    with sample_stack() as samples:          every 50 ms
        compile(...)
    samples.hot_function()                   torch.fx.experimental.symbolic_shapes:simplify

The hot function is the innermost function of the path that three quarters of the samples share.
Below it the time branches out; a recursion counts as its outermost functions.
"""

import sys
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

SECONDS = 0.05
SHARE = 0.75
"""Share of the samples that a hot path has."""

_MACHINERY = ("ctk.toolkit.", "contextlib", "functools", "threading", "torch.utils._config")
_LIBRARIES = ("sympy", "mpmath", "networkx")
"""Libraries that a compiler calls: their caller is the phase."""

Path = tuple[str, ...]
"""Functions as `module:name`, outermost first."""


@dataclass(frozen=True, slots=True)
class StackSamples:
    """The sampled paths, and how often each was seen."""

    paths: Counter[Path] = field(default_factory=Counter[Path])

    def hot_path(self) -> Path:
        """Return the longest path that three quarters of the samples share."""
        least = SHARE * self.paths.total()
        found: Path = ()
        while True:
            longer = Counter[Path]()
            for path, count in self.paths.items():
                if len(path) > len(found) and path[: len(found)] == found:
                    longer[path[: len(found) + 1]] += count
            best = longer.most_common(1)
            if not best or best[0][1] < least:
                return found
            found = best[0][0]

    def hot_function(self) -> str:
        """Return the innermost function of a compiler on the hot path; "" if there is none."""
        path = [each for each in self.hot_path() if not each.startswith(_MACHINERY)]
        return next((each for each in reversed(path) if not each.startswith(_LIBRARIES)), "")


@contextmanager
def sample_stack() -> Generator[StackSamples]:
    """Sample the calling thread until the region ends."""
    samples, ended, thread = StackSamples(), threading.Event(), threading.get_ident()

    def sample() -> None:
        while not ended.wait(SECONDS):
            frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]  # the only way to another thread's stack
            if frame is not None:
                samples.paths[_path_of(frame)] += 1

    sampler = threading.Thread(target=sample, name="ctk-samples", daemon=True)
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()


def _path_of(frame: FrameType | None) -> Path:
    path: list[str] = []
    while frame is not None:
        path.append(f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_name}")
        frame = frame.f_back
    return tuple(reversed(path))
