"""A context manager that calls its own `close` at the end of its block.

with Player(path) as player:      its process starts with the first question
    player.play(text, plan)
                                  the process has ended
"""

from typing import Protocol, Self


class Closeable(Protocol):
    """An object with `close`, to be used in a `with` block."""

    __slots__ = ()

    def close(self) -> None:
        """Release processes, files and folders."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
