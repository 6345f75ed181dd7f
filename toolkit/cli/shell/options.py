"""The arguments of commands, and the options for printing, which every command has.

Options of operations are fields of their options classes (toolkit/options.py,
toolkit/operations/options.py).
"""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from ctk.toolkit.cli.shell.completion import complete_case


def argument(
    metavar: str,
    text: str | None = None,
    complete: Callable[[str], list[str]] | None = None,
    **settings: Any,
) -> Any:
    """Return the declaration of a positional argument; `settings` are those of Typer."""
    return typer.Argument(
        metavar=metavar, help=text, show_default=False, autocompletion=complete, **settings
    )


SubjectArgument = Annotated[
    str,
    argument(
        "CASE",
        "A case folder; FILE.py with functions model() and inputs() "
        "(FILE.py:build,example for other names); torch's repro.py or fx_graph_runnable.py; "
        "FILE.pt2; or pytest:FILE::TEST.",
        complete_case,
    ),
]

JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")
]
QuietOutput = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the first line of the answer only, no progress."),
]
VerboseOutput = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Log the work of ctk to stderr, with tracebacks and times."
    ),
]
