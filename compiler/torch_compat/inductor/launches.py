"""Tell processes that Inductor starts for itself from those of the user's program."""

import inspect
import subprocess
from collections.abc import Iterator
from types import FrameType

_PACKAGE = "torch._inductor."


def is_launched_by_inductor() -> bool:
    """Return whether Inductor is the caller of `subprocess`; to be asked in an audit hook."""
    callers = (str(frame.f_globals.get("__name__")) for frame in _frames())
    for name in callers:
        if name == subprocess.__name__:
            return next((each for each in callers if each != name), "").startswith(_PACKAGE)
    return False


def _frames() -> Iterator[FrameType]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
