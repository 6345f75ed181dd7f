"""Kernels that compile while the pipeline goes on; their compile waits for them at its end.

The kernels of the forward graph compile in threads while the backward graph is transformed and
lowered. A graph defers by `defer`; outside of `deferred` it has to wait at once.

A compile that fails leaves no thread behind: it cancels the kernels that have not begun, and waits
for the others.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

Wait = Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Deferred:
    waits: list[Wait] = field(default_factory=list[Wait])
    begun: list["Future[float]"] = field(default_factory=list["Future[float]"])


_deferred: ContextVar[_Deferred | None] = ContextVar("ctk_deferred", default=None)


@contextmanager
def deferred(*, enabled: bool) -> Generator[None]:
    """Let the graphs of a compile defer; at the end call their functions, which may raise."""
    own = _Deferred()
    with cancelled_on_error(own.begun):
        token = _deferred.set(own if enabled else None)
        try:
            yield
        finally:
            _deferred.reset(token)
        for each in own.waits:
            each()


def can_defer() -> bool:
    """Return whether this compile calls deferred functions at its end."""
    return _deferred.get() is not None


def defer(ready: Wait, begun: Iterable["Future[float]"]) -> None:
    """Call a function, which waits for kernels that compile in threads, at the end."""
    own = _deferred.get()
    assert own is not None, "defer() outside of deferred()"
    own.waits.append(ready)
    own.begun.extend(begun)


@contextmanager
def cancelled_on_error(begun: Sequence["Future[float]"]) -> Generator[None]:
    """Cancel the kernels that have not begun if the region raises, and wait for the others."""
    try:
        yield
    except BaseException:  # Ctrl-C as well
        for each in begun:
            each.cancel()
        wait(begun)
        raise
