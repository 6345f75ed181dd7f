"""The options that commands share, each defined once, and the parsing of `--config KEY=VALUE`.

Only annotations and parsing: what an option means to a compile is decided in the toolkit.
"""

import ast
import json
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ctk.compiler.errors import ConfigError

WHAT = "What to work on"
HOW = "How to compile it"
RUN = "How to run it"


class InputsPolicy(StrEnum):
    """How much of the inputs a case keeps."""

    FULL = "full"
    RECIPE = "recipe"
    NONE = "none"


Subject = Annotated[
    str,
    typer.Argument(
        metavar="CASE",
        help="A case folder, or FILE.py with functions model() and inputs() "
        "(FILE.py:build,example for other names).",
        show_default=False,
    ),
]
GraphNumber = Annotated[
    int | None,
    typer.Option(
        "--graph",
        metavar="N",
        min=0,
        help="Which graph of several, from 0 (default: each; the one that fails is reported).",
        show_default=False,
        rich_help_panel=WHAT,
    ),
]
AllowImport = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-import",
        metavar="MODULE",
        help="A module that loading the case may import (repeatable; default: torch only).",
        show_default=False,
        rich_help_panel=WHAT,
    ),
]
TargetSpec = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="ctk, inductor, aot_eager, torchscript, MODULE:CALLABLE, or a Dynamo backend's name "
        "(default: the case's own; ctk for FILE.py).",
        show_default=False,
        rich_help_panel=HOW,
    ),
]
ConfigPairs = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="An option of the target (repeatable). VALUE: JSON, a Python literal, else a string.",
        show_default=False,
        rich_help_panel=HOW,
    ),
]
Backward = Annotated[
    bool,
    typer.Option(
        "--backward", help="Run the backward pass too, and compare gradients.", rich_help_panel=HOW
    ),
]
Dynamic = Annotated[
    bool,
    typer.Option("--dynamic", help="Capture FILE.py with symbolic sizes.", rich_help_panel=HOW),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        help="Longest that one question (compile and run) may take; needs --isolate.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
Isolate = Annotated[
    bool | None,
    typer.Option(
        "--isolate/--no-isolate",
        help="Ask each question in a child process, which survives crashes and hangs "
        "(default: with --timeout, and for cases that crash or hang).",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
OutFolder = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Folder to write to.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
Inputs = Annotated[
    InputsPolicy,
    typer.Option(
        "--inputs",
        help="What a written case keeps of its inputs: values, a recipe for similar ones, nothing.",
        rich_help_panel=RUN,
    ),
]
MaxQuestions = Annotated[
    int | None,
    typer.Option(
        "--max-questions",
        metavar="N",
        min=1,
        help="Stop reducing after so many questions to the oracle.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        metavar="SECONDS",
        min=0.1,
        help="Stop reducing after so long.",
        show_default=False,
        rich_help_panel=RUN,
    ),
]
JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")
]


def parse_config(pairs: Iterable[str] | None) -> dict[str, object]:
    """Return the options in `KEY=VALUE` strings; a dotted key stays one key, the last one wins.

    Raises:
        ConfigError: A string without `=`, or with an empty key.
    """
    config: dict[str, object] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"--config {pair!r} is not KEY=VALUE\n  e.g. --config fallback='[\"eager\"]'"
            )
        config[key.strip()] = parse_value(text)
    return config


def parse_value(text: str) -> object:
    """Return `text` as JSON, else as a Python literal, else as the string that it is.

    Examples:
        `true` and `True` are bools, `1e-3` a float, `["a"]` and `['a']` lists, `accuracy` a string.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
