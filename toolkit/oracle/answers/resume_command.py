"""The command that goes on where an operation was ended, made from what its journal says.

It is put together from single words, never copied from a file, because people paste it; and it
trusts no case that the user does not trust again.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.admission import trust_option
from ctk.toolkit.options import CALLS
from ctk.toolkit.oracle.answers.journal import (
    JOURNAL,
    OTHER_QUESTION,
    Header,
    OperationName,
    read_header,
)


def resume_command(header: Header, folder: Path, more: Mapping[str, object] | None = None) -> str:
    """Return the command that goes on in a folder; a call, for an object of the library's caller.

    Args:
        header: What the operation is about.
        folder: Where it writes.
        more: Options that no journal tells.

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


def resume_hint(folder: Path) -> str | None:
    """Return the command that goes on in a folder on disk; None where there is no journal to read.

    A journal that cannot be read says so when it is resumed. A case that needs trust is not given
    it here, and a command is not printed to be pasted: the folder may be somebody else's.
    """
    if not (folder / JOURNAL).is_file():
        return None
    try:
        header = read_header(folder)
    except CaseError:
        return None
    if header is None:
        return None
    if "command" in header.options:
        return f"ctk bisect-pass --command … --out {shlex.quote(str(folder))} --resume  # as it was"
    if "oracle" in header.options:  # a folder may be a stranger's: no command of it is repeated
        where = shlex.join([header.subject or "…", "--out", str(folder), "--resume"])
        return f"ctk {header.operation} {where} …  # with the oracle, as it was"
    command = resume_command(header, folder)
    needs_trust = bool(header.subject and trust_option(Path(header.subject).expanduser()))
    return f"{command}  # and --trust, if you trust who made the case" if needs_trust else command


def other_command(folder: Path, operation: OperationName) -> str | None:
    """Return the command that asks something else about what a folder is about, with its options.

    Args:
        folder: The folder of an operation.
        operation: What is asked.

    Returns:
        None where the folder has no journal, is about an object of the library's caller, or is
        about a case that needs trust.
    """
    try:
        header = read_header(folder) if (folder / JOURNAL).is_file() else None
    except CaseError:
        return None
    if header is None or header.subject is None or header.operation == operation:
        return None
    if trust_option(Path(header.subject).expanduser()):
        return None
    return command_about(header.subject, operation, header.options)


def command_about(subject: str, operation: OperationName, options: Mapping[str, object]) -> str:
    """Return the command that asks something about a subject.

    Args:
        subject: As the user names it.
        operation: What is asked.
        options: The keywords of operations; those that no command has are left out.
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
            case (("backward" | "dynamic" | "trust"), True):
                yield f"--{name}"
            case "calls", int() if value != CALLS:
                yield from ("--calls", str(value))
            case "strides", False:
                yield "--no-strides"
            case "graph", int():
                yield from ("--graph", str(value))
            case "allow_imports", list() | tuple():
                for module in value:
                    yield from ("--allow-import", str(module))
            case "isolate", bool():
                yield "--isolate" if value else "--no-isolate"
            case "timeout_seconds", int() | float():
                yield from ("--timeout", f"{value:g}")
            case "memory_nbytes", int():
                yield from ("--memory", str(value))
            case "jobs", int() if value != 1:
                yield from ("--jobs", str(value))
            case "executor", str():
                yield from ("--executor", value)
            case "resources", dict() if value:
                pairs = ",".join(f"{key}={item:g}" for key, item in value.items())
                yield from ("--resources", pairs)
            case _:
                pass


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
