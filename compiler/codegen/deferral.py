"""Kernels that compile while the pipeline goes on; their compile waits for them at its end.

The kernels of the forward graph compile in threads while the backward graph is transformed and
lowered. A graph defers by `defer`; outside of `deferred` it has to wait at once.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

Wait = Callable[[], None]

_waits: ContextVar[list[Wait] | None] = ContextVar("ctk_deferred_waits", default=None)


@contextmanager
def deferred(*, enabled: bool) -> Generator[None]:
    """Let the graphs of a compile defer; at the end call their functions, which may raise."""
    waits: list[Wait] | None = [] if enabled else None
    token = _waits.set(waits)
    try:
        yield
    finally:
        _waits.reset(token)
    for wait in waits or ():
        wait()


def can_defer() -> bool:
    """Return whether this compile calls deferred functions at its end."""
    return _waits.get() is not None


def defer(wait: Wait) -> None:
    """Call a function at the end of this compile."""
    waits = _waits.get()
    assert waits is not None, "defer() outside of deferred()"
    waits.append(wait)
