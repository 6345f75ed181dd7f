"""The command that resumes an operation, built from the header of its journal.

It is quoted word by word and never copied from a file, because people paste it. It does not repeat
`--trust`: the user decides again.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, cast

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.admission import trust_option
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.options import CALLS
from ctk.toolkit.oracle.answers.journal import (
    JOURNAL,
    OTHER_QUESTION,
    Header,
    OperationName,
    read_header,
)


def resume_command(header: Header, folder: Path, more: Mapping[str, object] | None = None) -> str:
    """Return the command that resumes in a folder; a call, for an object of the caller.

    Args:
        more: Options that the header does not hold.

    >>> header = Header("minify", "net.py", {"target": "inductor"}, "full", (), {})
    >>> resume_command(header, Path("small"))
    'ctk minify net.py --target inductor --out small --resume'
    """
    oracle = header.options.get("oracle")
    is_nameless = isinstance(oracle, Mapping) and not all(
        cast("Mapping[str, object]", oracle).values()
    )
    if is_nameless or (header.subject is None and "command" not in header.options):
        name = header.operation.replace("bisect-pass", "bisect")
        return f"ctk.{name}(…, out={str(folder)!r}, resume=True)  # in Python, with the same object"
    subject = [] if header.subject is None else [header.subject]
    words = ["ctk", header.operation, *subject, *_options({**header.options, **(more or {})})]
    if header.inputs != "full":
        words += ["--inputs", header.inputs]
    return shlex.join([*words, "--out", str(folder), "--resume"])


def resume_hint(folder: Path) -> NextStep | None:
    """Return the command that resumes a folder on disk; None without a readable journal.

    A damaged journal is an error when it is resumed. The folder may come from another person: a
    case that needs trust does not get it here, and a command of the journal is not printed.
    """
    header = _find_header(folder)
    if header is None:
        return None
    if "command" in header.options:
        words = f"ctk bisect-pass --command … --out {shlex.quote(str(folder))} --resume"
        return NextStep(words, "as it was")
    if "oracle" in header.options:
        where = shlex.join([header.subject or "…", "--out", str(folder), "--resume"])
        return NextStep(f"ctk {header.operation} {where} …", "with the oracle, as it was")
    command = resume_command(header, folder)
    needs_trust = bool(header.subject and trust_option(Path(header.subject).expanduser()))
    remark = "and --trust, if you trust who made the case" if needs_trust else ""
    return NextStep(command, remark)


def other_command(folder: Path, operation: OperationName) -> str | None:
    """Return the command of another operation on the subject of a folder, with its options.

    Returns:
        None where the folder has no journal, or its subject is an object of the caller or a case
        that needs trust.
    """
    header = _find_header(folder)
    if header is None or header.subject is None or header.operation == operation:
        return None
    if trust_option(Path(header.subject).expanduser()):
        return None
    return command_about(header.subject, operation, header.options)


def _find_header(folder: Path) -> Header | None:
    with suppress(CaseError):
        return read_header(folder) if (folder / JOURNAL).is_file() else None
    return None


def command_about(
    subject: str, operation: OperationName | Literal["check"], options: Mapping[str, object]
) -> str:
    """Return the command of an operation on a subject.

    Args:
        options: Keywords of operations; keywords without an option are left out.
    """
    told = {key: value for key, value in options.items() if key not in OTHER_QUESTION}
    return shlex.join(["ctk", operation, subject, *_options(told)])


def _options(options: Mapping[str, object]) -> Iterator[str]:
    for name, value in options.items():
        match name, value:
            case "command", str():
                yield from ("--command", value)
            case "oracle", dict():
                yield from _oracle_options(value)
            case "same_failure", str():
                yield from ("--same-failure", value)
            case "target", str():
                yield from ("--target", value)
            case "config", dict():
                for key, item in value.items():
                    yield from ("--config", f"{key}={json.dumps(item)}")
            case (("backward" | "dynamic" | "trust" | "aliases" | "thorough"), True):
                yield f"--{name}"
            case "calls", int() if value != CALLS:
                yield from ("--calls", str(value))
            case "strides", bool():
                yield "--strides" if value else "--no-strides"
            case "graph", int():
                yield from ("--graph", str(value))
            case "allow_imports", list() | tuple():
                for module in value:
                    yield from ("--allow-import", str(module))
            case "isolate", bool():
                yield "--isolate" if value else "--no-isolate"
            case "timeout_seconds", int() | float():
                yield from ("--timeout", f"{value:g}")
            case "compile_above", int() | float():
                yield from ("--compile-above", f"{value:g}")
            case "memory_nbytes", int():
                yield from ("--memory", str(value))
            case "jobs", int() if value != 1:
                yield from ("--jobs", str(value))
            case "executor", str():
                yield from ("--executor", value)
            case "resources", dict() if value:
                pairs = ",".join(f"{key}={item:g}" for key, item in value.items())
                yield from ("--resources", pairs)
            case (("good" | "bad" | "torch" | "index"), str()) if value:
                yield from (f"--{name}", value)
            case (("good_after" | "every" | "of_triton"), True):
                yield _SWITCHES[name]
            case "releases", list() | tuple() if value:
                yield from ("--releases", ",".join(map(str, value)))
            case (("packages" | "pythons"), list() | tuple()):
                for item in value:
                    yield from (_REPEATED[name], str(item))
            case "keep", False:
                yield "--clean"
            case _:
                pass


_SWITCHES = {"good_after": "--good-after", "every": "--all", "of_triton": "--triton"}
_REPEATED = {"packages": "--with", "pythons": "--python"}


def _oracle_options(chosen: Mapping[str, object]) -> Iterator[str]:
    names = {"command": "--command", "match": "--match", "function": "--oracle"}
    for name, value in chosen.items():
        match value:
            case str() if name in names:
                yield from (names[name], value)
            case int() | float():
                yield from (f"--{name.replace('_', '-')}", f"{value:g}x")
            case _:
                pass
