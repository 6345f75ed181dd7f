"""What is ended when its block is left, whether it goes well or raises.

    with Player(path) as player:      a process was started
        player.played(text, plan)
                                      it has ended

What it does not do: end anything twice; `close` says whether that is harmless.
"""

from typing import Protocol, Self


class Closeable(Protocol):
    """A context manager that gives itself to its block and closes itself afterwards."""

    __slots__ = ()

    def close(self) -> None:
        """End what was begun."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
