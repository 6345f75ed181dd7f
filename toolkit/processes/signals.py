"""Handlers of Ctrl-C and SIGTERM removed in forks and scripts; Ctrl-C deferred during a write.

    child = os.fork()            by default the child inherits the handler of ctk: `terminate()`
    os.kill(child, SIGTERM)      would raise KeyboardInterrupt in it, or be lost if it came at once,
                                 because Python drops a signal that arrives before it is ready

So the signals that end a command are blocked while a process forks, and the child removes the
handlers first. The same holds for a fork during `defer_interrupts`, whose block never ends in the
child.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Generator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ctk.toolkit.processes.interrupts import ENDING, Exit, Interrupt
from ctk.toolkit.processes.link import own_link


@dataclass(frozen=True, slots=True)
class Deferral:
    """Notes a signal for later; `previous` is the handler that it replaced."""

    previous: Any
    received: list[int]

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received.append(number)


def restore_handlers() -> None:
    """Restore the handlers that ctk replaced; to be called in a fork."""
    for number in ENDING:
        found = handler = signal.getsignal(number)
        while isinstance(handler, (Interrupt, Exit, Deferral)):
            handler = handler.previous
        if handler is not found:
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


@contextlib.contextmanager
def restore_ctrl_c() -> Generator[None]:
    """Handle Ctrl-C as Python does while a script runs: `asyncio.run` looks for that handler."""
    handler = signal.getsignal(signal.SIGINT)
    if not isinstance(handler, Interrupt):
        yield
        return
    signal.signal(signal.SIGINT, handler.previous)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def hide_from_forks(echo_descriptor: int) -> None:
    """Remove the handlers and the signal echo from processes that this one forks."""
    forking = threading.local()

    def block() -> None:
        forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)

    def restore() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, forking.mask)

    def clear() -> None:
        restore_handlers()
        descriptor = signal.set_wakeup_fd(-1)
        if descriptor not in (-1, echo_descriptor):  # set by the user's program
            signal.set_wakeup_fd(descriptor)
        restore()

    os.register_at_fork(before=block, after_in_parent=restore, after_in_child=clear)


@contextlib.contextmanager
def defer_interrupts() -> Generator[None]:
    """Deliver Ctrl-C, SIGTERM and SIGHUP after the block; only the main thread receives them.

    The supervisor, if there is one, is notified: it ends no command that writes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    link = own_link()
    link.note_writing(True)
    previous = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in previous.items():
        signal.signal(number, Deferral(handler, received))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        link.note_writing(False)
        for number in dict.fromkeys(received):
            signal.raise_signal(number)
