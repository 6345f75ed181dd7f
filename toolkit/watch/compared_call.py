"""The call of a compiled callable that is being compared with eager, and its graphs with it."""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call, counted from 1, of a compiled callable."""

    number: int
    callee: str

    def __str__(self) -> str:
        return f"call {self.number} of {self.callee}"


_RUNNING: ContextVar[ComparedCall | None] = ContextVar("ctk_compared_call", default=None)


def compared_call() -> ComparedCall | None:
    """Return the outermost compared call that is being made in this thread."""
    return _RUNNING.get()


@contextmanager
def comparing(call: ComparedCall) -> Generator[None]:
    """Compare every graph that is called inside the block."""
    token = _RUNNING.set(call)
    try:
        yield
    finally:
        _RUNNING.reset(token)
