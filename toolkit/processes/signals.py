"""Put off Ctrl-C for the moment in which something is written."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

from ctk.toolkit.processes.link import find_link

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def defer_interrupts() -> Generator[None]:
    """Deliver Ctrl-C and SIGTERM after the block; only the main thread gets them anyway.

    The supervisor, if there is one, is told: it ends no command that writes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    link = find_link()
    if link is not None:
        link.writing(True)
    previous = {number: signal.signal(number, remember) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if link is not None:
            link.writing(False)
        for number in dict.fromkeys(seen):
            signal.raise_signal(number)
