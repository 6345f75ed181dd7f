"""The options of the commands, each declared once, in the groups that commands take.

Only declarations and the parsing of `--config KEY=VALUE`: what an option means to a compile is
decided in the library, which takes the same words as keywords.
"""

import ast
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctk.compiler.errors import ConfigError
from ctk.compiler.options.choices import InputsMode
from ctk.compiler.options.environment import parse_size
from ctk.toolkit.cli.shell.completion import complete_case, complete_folder, complete_target

if TYPE_CHECKING:
    from ctk.toolkit.importers.base import CaseOptions
    from ctk.toolkit.oracle.several import IsolationKeywords

WHAT = "What to work on"
HOW = "How to compile it"
RUN = "How to run it"


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

BackwardOption = Annotated[
    bool,
    typer.Option(
        "--backward",
        help="Run the backward pass too, and compare gradients.",
        rich_help_panel=HOW,
    ),
]

DynamicOption = Annotated[
    bool,
    typer.Option("--dynamic", help="Capture FILE.py with symbolic sizes.", rich_help_panel=HOW),
]

GraphOption = Annotated[
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

TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Run what the case names: its target, passes and modules (ctk show CASE lists them).",
        rich_help_panel=WHAT,
    ),
]

AllowImportOption = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-import",
        metavar="MODULE",
        help="A module that loading the case may import (repeatable; default: none).",
        show_default=False,
        rich_help_panel=WHAT,
    ),
]


@dataclass(frozen=True, slots=True)
class SubjectOptions:
    """What to work on, and how to compile it."""

    subject: SubjectArgument
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            metavar="TARGET",
            help="ctk, inductor, aot_eager, torchscript, MODULE:CALLABLE, or a Dynamo "
            "backend's name (default: the case's own; ctk for FILE.py).",
            show_default=False,
            autocompletion=complete_target,
            rich_help_panel=HOW,
        ),
    ] = None
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="An option of the target (repeatable). VALUE: JSON, a Python literal, else a "
            "string.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None
    backward: BackwardOption = False
    dynamic: DynamicOption = False
    strides: Annotated[
        bool,
        typer.Option(
            "--strides/--no-strides",
            help="Whether strides of results that differ from eager's are a failure.",
            rich_help_panel=HOW,
        ),
    ] = True
    graph: GraphOption = None
    trust: TrustOption = False
    allow_import: AllowImportOption = None

    calls: Annotated[
        int,
        typer.Option(
            "--calls",
            metavar="N",
            min=1,
            help="How many calls of FILE.py are compared with eager ones at least.",
            rich_help_panel=HOW,
        ),
    ] = 2

    def keywords(self) -> "CaseOptions":
        """Return the options as the library takes them.

        Raises:
            ConfigError: A `--config` that is not `KEY=VALUE`.
        """
        return {
            "target": self.target,
            "config": parse_config(self.config),
            "backward": self.backward,
            "dynamic": self.dynamic,
            "graph": self.graph,
            "allow_imports": tuple(self.allow_import or ()),
            "trust": self.trust,
            "calls": self.calls,
            "strides": self.strides,
        }


def out_option(default: str) -> Any:
    """Return the option that says where to write to; `default` is told in its help."""
    return typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help=f"Folder to write to (default: {default}).",
        show_default=False,
        autocompletion=complete_folder,
        rich_help_panel=RUN,
    )


@dataclass(frozen=True, slots=True)
class OutOption:
    """Where to write to."""

    out: Annotated[Path | None, out_option("a new one here, named after CASE")] = None


@dataclass(frozen=True, slots=True)
class ResumeOption:
    """Whether to go on."""

    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on in DIR, where the same command was ended, and ask nothing again (default: "
            "in the newest folder of CASE here).",
            rich_help_panel=RUN,
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """What of the inputs is written."""

    inputs: Annotated[
        InputsMode,
        typer.Option(
            "--inputs",
            help="What a written case keeps of its inputs: a recipe for similar ones, values, "
            "nothing.",
            rich_help_panel=RUN,
        ),
    ] = "full"


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """How much a reduction may use."""

    max_questions: Annotated[
        int | None,
        typer.Option(
            "--max-questions",
            metavar="N",
            min=1,
            help="Stop reducing after so many questions to the oracle.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None
    max_seconds: Annotated[
        float | None,
        typer.Option(
            "--max-seconds",
            metavar="SECONDS",
            min=0.1,
            help="Stop reducing after so long.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class IsolationOptions:
    """Who runs the questions."""

    isolate: Annotated[
        bool | None,
        typer.Option(
            "--isolate/--no-isolate",
            help="Ask each question in a child process, which survives crashes and hangs "
            "(default: with --timeout, and for cases that crash or hang).",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0.1,
            help="Longest that one question (compile and run) may take; it is then asked "
            "in a child process.",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None

    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Most memory that one question may hold, such as 8G; it is then asked in a child "
            "process (default there: CTK_MEMORY, else most of what is free).",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None

    def keywords(self) -> "IsolationKeywords":
        """Return the options as the library takes them.

        Raises:
            ConfigError: A `--memory` that is no size.
        """
        return {
            "isolate": self.isolate,
            "timeout_seconds": self.timeout,
            "memory_nbytes": parse_memory(self.memory),
        }


JsonOutput = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout, and nothing else.")
]
QuietOutput = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print the first line of the answer only, no progress."),
]
VerboseOutput = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Log to stderr what ctk does, with tracebacks and times."),
]


def parse_memory(text: str | None) -> int | None:
    """Return the bytes of `--memory`.

    Raises:
        ConfigError: It is no size.
    """
    try:
        return parse_size(text) if text is not None else None
    except ValueError as error:
        raise ConfigError(f"--memory {text!r} is not allowed; {error}") from error


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
