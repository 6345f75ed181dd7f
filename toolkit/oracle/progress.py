"""Progress messages of the operations of the library."""

from typing import Protocol


class Say(Protocol):
    """Shows the work at hand, and how much of it is done where that is known."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None: ...


def silent(message: str, done: int | None = None, total: int | None = None) -> None:
    """Show nothing."""
