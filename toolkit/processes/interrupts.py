"""Signals that end a command: each raises KeyboardInterrupt, but not in the middle of an import.

    import torch               in a module of ctk
      import numpy             an exception raised in here may be lost: C extensions and bare
                               `except` clauses drop it, or turn it into another error
    ...                        so it is raised here, when the import by ctk returns

A second signal during that import is raised at once. Imports by the user's programs are not
deferred: they may run for hours.

This module imports nothing but small built-in modules: it is in place before all others.
"""

import os
import signal
import sys
from types import FrameType
from typing import Any

ENDING = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if name in signal.Signals.__members__
)
"""Ctrl-C, the time limit of a CI job, and a terminal that is closed."""

_PACKAGE = __name__.partition(".")[0]
_IMPORT = ("<frozen importlib._bootstrap>", "_find_and_load")


class Interrupt:
    """Handles a signal as Ctrl-C; `previous` is the handler that it replaced."""

    def __init__(self, previous: Any) -> None:
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        own = find_own_import(frame)
        if own is None or own.f_trace is not None or sys.gettrace() is not None:
            raise KeyboardInterrupt
        own.f_trace_lines = False
        own.f_trace = _interrupt_on_return
        sys.settrace(_ignore_event)


class Exit:
    """Ends this process at a signal, with the exit code of the answer that was printed."""

    def __init__(self, code: int, previous: Any) -> None:
        self.code = code
        self.previous = previous

    def __call__(self, number: int, frame: FrameType | None) -> None:
        os._exit(self.code)


def handle_interrupts() -> None:
    """Treat the signals that end a command like Ctrl-C; an ignored one (`nohup`) stays ignored."""
    for number in ENDING:
        previous = signal.getsignal(number)
        if previous is not signal.SIG_IGN and not isinstance(previous, Interrupt):
            signal.signal(number, Interrupt(previous))


def exit_at_interrupts(code: int) -> None:
    """Exit with a code at the next signal, where it would have raised KeyboardInterrupt."""
    for number in ENDING:
        handler = signal.getsignal(number)
        if isinstance(handler, (Interrupt, Exit)):
            signal.signal(number, Exit(code, handler.previous))


def ignore_interrupts() -> None:
    """Ignore the signals that end a command from now on."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def find_own_import(frame: FrameType | None) -> FrameType | None:
    """Return the import of another package by ctk, directly, that runs around a frame."""
    found = None
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORT:
            found = None if _is_own(frame.f_locals.get("name")) else frame
        elif not _is_of_importlib(frame):
            if _is_own(frame.f_globals.get("__name__")):
                return found
            found = None
        frame = frame.f_back
    return None


def _is_own(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] == _PACKAGE


def _is_of_importlib(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name.startswith("<frozen importlib") or frame.f_globals.get("__name__") == "importlib"


def _interrupt_on_return(frame: FrameType, event: str, arg: object) -> object:
    if event != "return":
        return _interrupt_on_return
    sys.settrace(None)
    raise KeyboardInterrupt


def _ignore_event(frame: FrameType, event: str, arg: object) -> None:
    return None
