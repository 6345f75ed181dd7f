"""The clock of a compile: the seconds of each phase, with or without an observer.

    with measured() as seconds:
        compile_fx(gm, inputs)
    seconds[("lowered", "C compiler")]

A phase is a stage and a name: a pass, or another part of the compile. Phases are nested
(dispatch traces, and calls the passes), and each counts only its own time. Outside of `measured`
a phase costs nothing.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

Seconds = dict[tuple[str, str], float]
"""The seconds of each phase, by stage and name, in the order in which they began."""


@dataclass(slots=True)
class _Clock:
    """Adds time up: to the innermost phase that is open."""

    now: Callable[[], float]
    seconds: Seconds = field(default_factory=Seconds)
    open: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    since: float = 0.0

    def settle(self) -> None:
        """Add the time since the last event to the innermost phase."""
        now = self.now()
        if self.open:
            self.seconds[self.open[-1]] += now - self.since
        self.since = now


_clock: ContextVar[_Clock | None] = ContextVar("ctk_clock", default=None)


@contextmanager
def measured(now: Callable[[], float] = time.perf_counter) -> Generator[Seconds]:
    """Measure the phases of compiles on this thread; yields their seconds so far.

    Args:
        now: The clock, in seconds: `time.process_time` on a busy machine.
    """
    clock = _Clock(now)
    token = _clock.set(clock)
    try:
        yield clock.seconds
    finally:
        _clock.reset(token)


@contextmanager
def phase(stage: str, name: str) -> Generator[None]:
    """Measure a phase, if phases are measured."""
    clock = _clock.get()
    if clock is None:
        yield
        return
    clock.settle()
    clock.seconds.setdefault((stage, name), 0.0)
    clock.open.append((stage, name))
    try:
        yield
    finally:
        clock.settle()
        clock.open.pop()
