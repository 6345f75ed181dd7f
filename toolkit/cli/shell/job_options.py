"""`--jobs`, `--executor`, `--resources`: how many questions are asked at once, and where."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ctk.compiler.errors import ConfigError
from ctk.compiler.options.choices import ExecutorName
from ctk.toolkit.cli.shell.options import RUN

if TYPE_CHECKING:
    from ctk.toolkit.oracle.executors.base import JobKeywords


@dataclass(frozen=True, slots=True)
class JobOptions:
    """How many questions are asked at once, and where."""

    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            "-j",
            metavar="N",
            min=0,
            help="How many candidates are asked about at once, each in a child process; the result "
            "is the same (0: one per core).",
            rich_help_panel=RUN,
        ),
    ] = 1
    executor: Annotated[
        ExecutorName,
        typer.Option(
            "--executor",
            help="Where: on this machine, or on a Ray cluster (pip install 'ctk[ray]').",
            rich_help_panel=RUN,
        ),
    ] = "local"
    resources: Annotated[
        list[str] | None,
        typer.Option(
            "--resources",
            metavar="NAME=N",
            help="What one question takes of the cluster, such as CPU=1,GPU=0.5.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None

    def keywords(self) -> "JobKeywords":
        """Return the options as the library takes them.

        Raises:
            ConfigError: A `--resources` that is not `NAME=NUMBER`.
        """
        return {
            "jobs": self.jobs,
            "executor": self.executor,
            "resources": parse_resources(self.resources),
        }


def parse_resources(texts: Iterable[str] | None) -> dict[str, float]:
    """Return the amounts in `NAME=NUMBER` strings, several in one with commas between them.

    Raises:
        ConfigError: A string without `=`, or with something that is no number.

    >>> parse_resources(["CPU=1,GPU=0.5", "TPU=4"])
    {'CPU': 1.0, 'GPU': 0.5, 'TPU': 4.0}
    """
    amounts: dict[str, float] = {}
    for pair in (pair for text in texts or () for pair in text.split(",")):
        name, _, number = pair.partition("=")
        try:
            amounts[name.strip()] = float(number)
        except ValueError:
            name = ""
        if not name.strip():
            raise ConfigError(f"--resources {pair!r} is not NAME=NUMBER\n  e.g. CPU=1,GPU=0.5")
    return amounts
