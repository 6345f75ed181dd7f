"""`ctk compile`: programs as a package, which runs without a compiler."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal

from ctk.toolkit.cli.commands.cache_ls import spoken_size
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.options import Flag, keywords_of, parse_config


def _weights(text: str) -> str:
    return text.replace("-", "_")


@dataclass(frozen=True, slots=True)
class PackageOptions:
    """How a package is compiled, and where it goes."""

    out: Annotated[
        Path | None,
        Flag(
            ("--out", "-o"),
            "File to write (default: FILE.ctk here; model.ctk for several programs).",
            metavar="PACKAGE",
        ),
    ] = None
    config: Annotated[
        Mapping[str, object] | None,
        Flag(
            ("--config", "-c"),
            "An option of the compiler (repeatable). VALUE: JSON, a Python literal, else a string.",
            metavar="KEY=VALUE",
            typed=list[str] | None,
            parse=parse_config,
        ),
    ] = None
    weights: Annotated[
        Literal["keep", "leave-out"],
        Flag(
            ("--weights",),
            "Keep weights in the package, or leave them out: then they are bound when it is "
            "loaded.",
            parse=_weights,
        ),
    ] = "keep"
    as_tuple: Annotated[
        bool, Flag(("--as-tuple",), "Results are flat tuples, however the model nests them.")
    ] = False
    dynamic: Annotated[
        bool,
        Flag(
            ("--dynamic",),
            "Every size of the inputs of FILE.py varies where the model lets it "
            "(dynamic_shapes() in the file names them, with ranges).",
        ),
    ] = False
    trust: Annotated[bool, Flag(("--trust",), "Read an archive whose pickles may run code.")] = (
        False
    )


def compile(
    programs: Annotated[
        list[str],
        argument(
            "[NAME=]PROGRAM",
            "FILE.pt2 of torch.export, or FILE.py with functions model() and inputs() "
            "(FILE.py:build,example for other names). NAME: the name of its entry point.",
            complete_case,
        ),
    ],
    options: PackageOptions,
) -> Answer:
    """Compile programs ahead of time into a package.

    A package runs in another process at once: without tracing, without a compiler, from Python
    (ctk.load) and from C (ctk c-api). Each program is an entry point of it.
    """
    from ctk.toolkit.operations.compile_package.package_build import compile_package

    with progress() as report:
        found = compile_package(programs, say=report, **keywords_of(options))
    names = ", ".join(found.entries)
    said = f"{found.path}: {names}; {spoken_size(found.nbytes)} in {found.seconds:.1f} s"
    data = {
        "package": str(found.path),
        "entries": list(found.entries),
        "nbytes": found.nbytes,
        "seconds": found.seconds,
    }
    look = f"look at it: ctk show {quote(str(found.path))}"
    return Answer(ExitCode.NO_FAILURE, said, data, (look,))


COMMAND = Command("compile", compile)
