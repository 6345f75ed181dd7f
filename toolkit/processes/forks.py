"""SIGTERM as Ctrl-C in this process, and as without us in those that the user's program forks.

    child = os.fork()            without more, the child inherits our handler: `terminate()` would
    os.kill(child, SIGTERM)      raise KeyboardInterrupt in it, and be lost if it came at once,
                                 because Python forgets what a child catches before it is ready

So SIGTERM is blocked while a process forks, and the child takes our handler away first.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Handles a signal as Ctrl-C.

    Attributes:
        previous: What handled it before.
    """

    previous: Any

    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt


@contextlib.contextmanager
def handle_terminate_as_interrupt() -> Generator[None]:
    """Treat SIGTERM (a CI job's time limit) like Ctrl-C, so that the best result so far is kept."""
    previous = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, Interrupt(previous))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def hide_from_forks(echo_descriptor: int) -> None:
    """Let processes that this one forks from now on have neither our handler nor our echo.

    Args:
        echo_descriptor: Gets the number of each signal that this process catches
            (`signal.set_wakeup_fd`).
    """
    here = threading.local()

    def hold() -> None:
        here.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def release() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, here.mask)

    def leave() -> None:
        handler, descriptor = signal.getsignal(signal.SIGTERM), signal.set_wakeup_fd(-1)
        if isinstance(handler, Interrupt):
            signal.signal(signal.SIGTERM, handler.previous)
        if descriptor not in (-1, echo_descriptor):  # one of the user's program
            signal.set_wakeup_fd(descriptor)
        release()

    os.register_at_fork(before=hold, after_in_parent=release, after_in_child=leave)
