"""Who shares a machine: one that was short of memory in company is asked again alone.

with company.together(): ...      with any others that are together
with company.alone(): ...         when all of them are done; new ones wait meanwhile
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ctk.toolkit.oracle.executors.protocol import Unwanted

_LOOK_SECONDS = 0.1


class MemoryGate:
    """The questions that run on one machine; for any thread.

    Args:
        size: How many may run at the same time.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._together = 0
        self._is_alone = False

    @contextmanager
    def together(self, is_unwanted: Callable[[], bool]) -> Generator[None]:
        """Wait until nobody is, or wants to be, alone; raises `Unwanted` when that is too long."""
        with self._changed:
            self._wait(lambda: not self._is_alone, is_unwanted)
            self._together += 1
        try:
            yield
        finally:
            with self._changed:
                self._together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self, is_unwanted: Callable[[], bool]) -> Generator[None]:
        """Wait until nobody else runs; raises `Unwanted` when that is too long."""
        with self._changed:
            self._wait(lambda: not self._is_alone, is_unwanted)
            self._is_alone = True
        try:
            with self._changed:
                self._wait(lambda: self._together == 0, is_unwanted)
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], is_unwanted: Callable[[], bool]) -> None:
        while not condition():
            if is_unwanted():
                raise Unwanted
            self._changed.wait(_LOOK_SECONDS)
