"""The options that say which question is asked about a candidate, and which failures are alike.

What a command, a function or a factor must be is checked in the library (oracle/choice.py).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ctk.compiler.options.choices import SameRule
from ctk.toolkit.cli.shell.options import RUN

if TYPE_CHECKING:
    from ctk.toolkit.oracle.choice import OracleKeywords

ASKED = "What to ask (default: does it fail as CASE does?)"


@dataclass(frozen=True, slots=True)
class OracleOptions:
    """Which question is asked about each candidate."""

    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="CMD",
            help="A program decides, as shell words in quotes: exit code 0 is no failure, 125 "
            "cannot tell, another one the failure. {case} in it is a folder, {repro} a script.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None
    match: Annotated[
        str | None,
        typer.Option(
            "--match",
            metavar="REGEX",
            help="The output of CMD decides: a match is the failure.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None
    oracle: Annotated[
        str | None,
        typer.Option(
            "--oracle",
            metavar="FILE.py:NAME",
            help="A function decides (MODULE:NAME, too): it takes a case and returns True for the "
            "failure.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None
    slower_than: Annotated[
        str | None,
        typer.Option(
            "--slower-than",
            metavar="FACTOR",
            help="The compiled call takes so many times as long as eager's, such as 1.5x.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None
    memory_above: Annotated[
        str | None,
        typer.Option(
            "--memory-above",
            metavar="FACTOR",
            help="The compiled call takes so many times as much memory as eager's, at its peak.",
            show_default=False,
            rich_help_panel=ASKED,
        ),
    ] = None

    def keywords(self) -> "OracleKeywords":
        """Return the options as the library takes them."""
        return {
            "command": self.command,
            "match": self.match,
            "oracle": self.oracle,
            "slower_than": self.slower_than,
            "memory_above": self.memory_above,
        }


@dataclass(frozen=True, slots=True)
class SameFailureOption:
    """What makes two failures the same."""

    same_failure: Annotated[
        SameRule | None,
        typer.Option(
            "--same-failure",
            help="What makes two failures the same: also the message (numbers apart); kind and "
            "exception type alone; any failure (default: kind, exception type, raising place). "
            "Others that are met are kept in DIR/others.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None
