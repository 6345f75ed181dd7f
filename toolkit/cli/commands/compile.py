"""`ctk compile`: programs as a package, which runs without a compiler."""

from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer

from ctk.toolkit.cli.commands.cache_ls import spoken_size
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import HOW, RUN, parse_config
from ctk.toolkit.cli.shell.progress import progress


@dataclass(frozen=True, slots=True)
class PackageOptions:
    """How a package is compiled, and where it goes."""

    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PACKAGE",
            help="File to write (default: FILE.ctk here; model.ctk for several programs).",
            show_default=False,
            rich_help_panel=RUN,
        ),
    ] = None
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="KEY=VALUE",
            help="An option of the compiler (repeatable). VALUE: JSON, a Python literal, else a "
            "string.",
            show_default=False,
            rich_help_panel=HOW,
        ),
    ] = None
    weights: Annotated[
        Literal["keep", "leave-out"],
        typer.Option(
            "--weights",
            help="Keep weights in the package, or leave them out: then they are bound when it is "
            "loaded.",
            rich_help_panel=RUN,
        ),
    ] = "keep"
    as_tuple: Annotated[
        bool,
        typer.Option(
            "--as-tuple",
            help="Results are flat tuples, however the model nests them.",
            rich_help_panel=RUN,
        ),
    ] = False
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            help="Every size of the inputs of FILE.py varies where the model lets it "
            "(dynamic_shapes() in the file says which, in what range).",
            rich_help_panel=HOW,
        ),
    ] = False
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Read an archive whose pickles may run code.",
            rich_help_panel=RUN,
        ),
    ] = False

    def keywords(self) -> dict[str, Any]:
        """Return the options as the library takes them.

        Raises:
            ConfigError: A `--config` that is not `KEY=VALUE`.
        """
        return {
            "out": self.out,
            "config": parse_config(self.config),
            "weights": self.weights.replace("-", "_"),
            "as_tuple": self.as_tuple,
            "dynamic": self.dynamic,
            "trust": self.trust,
        }


def compile(
    programs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]PROGRAM",
            help="FILE.pt2 of torch.export, or FILE.py with functions model() and inputs() "
            "(FILE.py:build,example for other names). NAME: what its entry point is called.",
            show_default=False,
            autocompletion=complete_case,
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
        found = compile_package(programs, say=report, **options.keywords())
    names = ", ".join(found.entries)
    said = f"{found.path}: {names}; {spoken_size(found.nbytes)} in {found.seconds:.1f} s"
    data = {
        "package": str(found.path),
        "entries": list(found.entries),
        "nbytes": found.nbytes,
        "seconds": found.seconds,
    }
    return Answer(
        ExitCode.NO_FAILURE, said, data, (f"look at it: ctk show {quote(str(found.path))}",)
    )


COMMAND = Command("compile", compile)
