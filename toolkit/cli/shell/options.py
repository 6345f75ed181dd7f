"""The argument CASE, and the options for printing, which every command has.

Options of operations are fields of their options classes (toolkit/options.py,
toolkit/operations/options.py).
"""

from typing import Annotated

import typer

from ctk.toolkit.cli.shell.completion import complete_case

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="CASE",
        help="A case folder; FILE.py with functions model() and inputs() "
        "(FILE.py:build,example for other names); torch's repro.py or fx_graph_runnable.py; "
        "FILE.pt2; or pytest:FILE::TEST.",
        show_default=False,
        autocompletion=complete_case,
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
