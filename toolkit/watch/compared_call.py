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


_IN_EAGER: ContextVar[bool] = ContextVar("ctk_captured_graphs_in_eager", default=False)


def are_graphs_in_eager() -> bool:
    """Return whether watched graphs run as they were captured, in this thread."""
    return _IN_EAGER.get()


@contextmanager
def graphs_in_eager() -> Generator[None]:
    """Run each watched graph as it was captured, without its compiler, inside the block."""
    token = _IN_EAGER.set(True)
    try:
        yield
    finally:
        _IN_EAGER.reset(token)
