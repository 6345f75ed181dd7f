"""A gate for questions that share the memory of a machine.

A question that ran out of memory beside others is repeated alone:

    with gate.share(...): ...       beside other shared questions
    with gate.exclude(...): ...     after all of them; new ones wait
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from ctk.toolkit.oracle.executors.protocol import Cancelled

_LOOK_SECONDS = 0.1


class MemoryGate:
    """The questions that run on one machine; thread-safe."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed = threading.Condition()
        self._sharing = 0
        self._is_exclusive = False

    @contextmanager
    def share(self, is_cancelled: Callable[[], bool]) -> Generator[None]:
        """Run the block beside others; raises `Cancelled` if cancelled while it waits."""
        with self._changed:
            self._wait(lambda: not self._is_exclusive, is_cancelled)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def exclude(self, is_cancelled: Callable[[], bool]) -> Generator[None]:
        """Run the block while no other question runs; raises `Cancelled` if cancelled meanwhile."""
        with self._changed:
            self._wait(lambda: not self._is_exclusive, is_cancelled)
            self._is_exclusive = True
        try:
            with self._changed:
                self._wait(lambda: self._sharing == 0, is_cancelled)
            yield
        finally:
            with self._changed:
                self._is_exclusive = False
                self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], is_cancelled: Callable[[], bool]) -> None:
        while not condition():
            if is_cancelled():
                raise Cancelled
            self._changed.wait(_LOOK_SECONDS)
