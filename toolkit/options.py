"""Options of the operations, each declared once: for the library and for the command line.

A frozen dataclass is a group of options; each group extends the one below it:

    CaseOptions -> AskOptions -> the options of one operation (operations/options.py)

The library takes the fields as keywords (operations/keywords.py). The command line makes an option
of every field that has a `Flag` (cli/shell/flatten.py); a field without one is for callers only.

    timeout_seconds: Annotated[float | None, Flag(("--timeout",), "Longest ...")] = None

    ctk.check(f, x, timeout_seconds=60)         ctk check f.py --timeout 60

Imports no torch, so that `ctk --help` answers at once.
"""

import ast
import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

from ctk.compiler.errors import ConfigError, nearest, not_taken
from ctk.compiler.options.environment import parse_size

Section = Literal["case", "output", "limits", "jobs", "question", "failure", "report"]

SECTIONS: tuple[Section, ...] = get_args(Section)
"""The order of options in the help of a command; within a section, that of declaration."""

CALLS = 2
"""Default number of compared calls of a program."""


@dataclass(frozen=True, slots=True)
class Flag:
    """The command-line form of a field.

    Attributes:
        names: Its spellings, the long one first.
        help: The help text.
        metavar: The name of its value in help texts; None for the name of its type.
        minimum: The smallest number allowed.
        section: Its place in the help.
        typed: The type on the command line, where it differs from that of the field.
        parse: Makes the value of the field from that of the command line; raises `ConfigError`.
    """

    names: tuple[str, ...]
    help: str
    metavar: str | None = None
    minimum: float | None = None
    section: Section = "case"
    typed: Any = None
    parse: Callable[[Any], object] | None = None


def flag_of(annotation: Any) -> Flag | None:
    """Return the flag of an annotation; None if the command line does not have it."""
    metadata: tuple[object, ...] = getattr(annotation, "__metadata__", ())
    return next((each for each in metadata if isinstance(each, Flag)), None)


def parse_memory(text: str | None) -> int | None:
    """Return the bytes of `--memory`.

    Raises:
        ConfigError: The text is not a size.
    """
    try:
        return parse_size(text) if text is not None else None
    except ValueError as error:
        raise not_taken("--memory", text, str(error)) from error


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
    """Return `text` as JSON, else as a Python literal, else unchanged.

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


def parse_resources(texts: Iterable[str] | None) -> dict[str, float]:
    """Return the amounts in `NAME=NUMBER` strings, several in one with commas between them.

    Raises:
        ConfigError: A string without `=`, or with a value that is not a number.

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


def tuple_of(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the values of a repeatable option."""
    return tuple(names or ())


Backward = Annotated[
    bool, Flag(("--backward",), "Also run the backward pass, and compare gradients.")
]
Dynamic = Annotated[bool, Flag(("--dynamic",), "Capture FILE.py with symbolic sizes.")]
GraphNumber = Annotated[
    int | None,
    Flag(
        ("--graph",),
        "Which graph of several, from 0 (default: each; the failing one is reported).",
        metavar="N",
        minimum=0,
    ),
]
Trust = Annotated[
    bool,
    Flag(
        ("--trust",),
        "Run the code that the case names: target, passes, modules (ctk show CASE lists them).",
    ),
]
AllowImports = Annotated[
    Sequence[str],
    Flag(
        ("--allow-import",),
        "A module that loading the case may import (repeatable; default: none).",
        metavar="MODULE",
        typed=list[str] | None,
        parse=tuple_of,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOptions:
    """How cases are loaded and compiled; an option wins over that of the case or program.

    Attributes:
        target: Target spec; None for the case's own, and `ctk` for a program.
        config: Options of the target.
        backward: Also run the backward pass, and compare gradients.
        dynamic: Capture a program with symbolic sizes.
        strides: Whether other strides than eager's are a failure also where they are the
            compiler's choice; None for the case's own, and no for a program.
        graph: Which graph of several, from 0; None for all.
        trust: Whether the user trusts the author of a case folder; a program needs no trust.
        allow_imports: Modules that loading a case may import.
        calls: Least number of calls of a program to compare with eager ones.
        aliases: Also make calls whose inputs share memory or lie otherwise in it, if the program
            writes to an input or a buffer, or returns a view of one.
        isolate: Whether questions run in child processes; a program on a GPU is then also captured
            in one.
    """

    target: Annotated[
        str | None,
        Flag(
            ("--target", "-t"),
            "ctk, inductor, aot_inductor, aot_eager, torchscript, MODULE:CALLABLE, or a Dynamo "
            "backend's name (default: the case's own; ctk for FILE.py).",
            metavar="TARGET",
        ),
    ] = None
    config: Annotated[
        Mapping[str, object] | None,
        Flag(
            ("--config", "-c"),
            "An option of the target (repeatable). VALUE: JSON, a Python literal, else a string.",
            metavar="KEY=VALUE",
            typed=list[str] | None,
            parse=parse_config,
        ),
    ] = None
    backward: Backward = False
    dynamic: Dynamic = False
    strides: Annotated[
        bool | None,
        Flag(
            ("--strides/--no-strides",),
            "Whether other strides than eager's are a failure also where the compiler chose them "
            "(default: no; wrong strides of a fake implementation always are).",
        ),
    ] = None
    graph: GraphNumber = None
    trust: Trust = False
    allow_imports: AllowImports = ()
    calls: Annotated[
        int,
        Flag(
            ("--calls",),
            "How many calls of FILE.py are compared with eager ones at least.",
            metavar="N",
            minimum=1,
        ),
    ] = CALLS
    aliases: Annotated[
        bool,
        Flag(
            ("--aliases",),
            "Also call FILE.py with inputs that share memory or lie otherwise in it, if it writes "
            "to an input.",
        ),
    ] = False
    isolate: Annotated[
        bool | None,
        Flag(
            ("--isolate/--no-isolate",),
            "Ask each question in a child process, which survives crashes and hangs "
            "(default: with --timeout, and for cases that crash or hang).",
            section="limits",
        ),
    ] = None

    def check(self) -> None:
        """Refuse values that a type checker would refuse; many scripts are never type-checked.

        Raises:
            ConfigError: A value has another type than its option.
        """
        names = ("target", "config", "calls", "graph")
        target, config, calls, graph = (getattr(self, name) for name in names)
        for name, kind in (("trust", bool), ("aliases", bool), ("strides", bool | None)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ConfigError(f"{name} is {value!r}; it must be True or False")
        if target == "":
            raise ConfigError("the target is empty; leave it out for the case's own, or name one")
        if not isinstance(target, str | None):
            raise ConfigError(
                f"target is a {type(target).__name__}; name it: 'inductor', 'my_module:my_backend' "
                "or 'path/to/file.py:my_backend'"
            )
        if not isinstance(config, Mapping | None):
            raise ConfigError(
                f"config is a {type(config).__name__}; it must be a dict of the target's options, "
                "such as {'fuel': 3}"
            )
        if not isinstance(calls, int) or calls < 1:
            raise ConfigError(f"calls is {calls!r}; it must be the number of calls, from 1")
        if graph is not None and (not isinstance(graph, int) or graph < 0):
            raise ConfigError(f"graph is {graph!r}; it must be the number of a graph, from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOptions(CaseOptions):
    """The options of every operation that asks an oracle.

    Attributes:
        timeout_seconds: Longest that one question may take; None for the default.
        memory_nbytes: Most memory that one question may hold; None for the default.
        compile_above: Least seconds of a slow compile, which is then the question; None: the
            results are.
        accept_documented: Whether a difference that torch documents has exit code 0, or 1; its
            verdict is the same.
    """

    timeout_seconds: Annotated[
        float | None,
        Flag(
            ("--timeout",),
            "Longest that one question (compile and run) may take; it is then asked "
            "in a child process.",
            metavar="SECONDS",
            minimum=0.1,
            section="limits",
        ),
    ] = None
    memory_nbytes: Annotated[
        int | None,
        Flag(
            ("--memory",),
            "Most memory that one question may hold, such as 8G; it is then asked in a child "
            "process (default there: CTK_MEMORY, else most of the free memory).",
            metavar="SIZE",
            section="limits",
            typed=str | None,
            parse=parse_memory,
        ),
    ] = None
    compile_above: Annotated[
        float | None,
        Flag(
            ("--compile-above",),
            "A compile that takes so long is the failure, if its time grows faster than its graph "
            "(slow-compile); results are not compared.",
            metavar="SECONDS",
            minimum=0.01,
            section="failure",
        ),
    ] = None
    accept_documented: Annotated[
        bool,
        Flag(
            ("--accept-documented/--no-accept-documented",),
            "Whether a difference that torch documents has exit code 0, or 1.",
            section="report",
        ),
    ] = True

    @property
    def told(self) -> dict[str, object]:
        """The options as a journal records them, and as printed commands repeat them."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(AskOptions)}


AnyOptions = TypeVar("AnyOptions", bound=CaseOptions)


def options_of(make: Callable[..., AnyOptions], keywords: Mapping[str, Any]) -> AnyOptions:
    """Return the options that a caller's keywords make.

    Raises:
        TypeError: A keyword is unknown or missing.
        ConfigError: A value has another type than its option.
    """
    names = [field.name for field in dataclasses.fields(make)]  # type: ignore[arg-type]  # `make` is a dataclass
    for name in keywords:
        if name not in names:
            raise TypeError(f"unexpected keyword argument {name!r}{nearest(name, names)}")
    options = make(**keywords)
    options.check()
    return options


def keywords_of(options: Any) -> dict[str, Any]:
    """Return options as keywords, to hand them on to an operation of the library."""
    names = (field.name for field in dataclasses.fields(options) if flag_of(field.type))
    return {name: getattr(options, name) for name in names}
