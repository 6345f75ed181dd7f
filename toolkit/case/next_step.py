"""A next step for the user: a command to paste with a remark, or advice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command with a remark, or a remark alone.

    >>> str(NextStep("ctk minify net.py", "makes it small"))
    'ctk minify net.py  # makes it small'
    """

    command: str
    remark: str = ""

    def __str__(self) -> str:
        return "  # ".join(filter(None, (self.command, self.remark)))
