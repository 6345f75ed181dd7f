"""How an operation of the library tells what it is doing."""

from typing import Protocol


class Say(Protocol):
    """Told what happens now, and how much of it is done, when that is known."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None: ...


def silent(message: str, done: int | None = None, total: int | None = None) -> None:
    """Tell nobody."""
