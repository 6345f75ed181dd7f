"""`ctk c-api`: where the two files are that C programs compile into themselves."""

import shlex
from typing import Annotated

import typer

from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command


def c_api(
    cflags: Annotated[
        bool, typer.Option("--cflags", help="Print the compiler flags that find ctk.h.")
    ] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Print the file to compile.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Print what to link.")] = False,
) -> Answer:
    """Say how a C program calls packages.

    cc $(ctk c-api --cflags) program.c $(ctk c-api --sources) $(ctk c-api --libs)

    Without an option: the folder of ctk.h, which is the documentation, and ctk.c. A program needs
    neither Python nor ctk once it is compiled.
    """
    from ctk.compiler.packages.c_api import FOLDER, SOURCE

    found = {"cflags": f"-I{FOLDER}", "sources": str(SOURCE), "libs": "-ldl"}
    data = {"folder": str(FOLDER), **found}
    asked = [
        name for name, is_asked in zip(found, (cflags, sources, libs), strict=True) if is_asked
    ]
    said = " ".join(shlex.quote(found[name]) for name in asked) or str(FOLDER)
    return Answer(ExitCode.NO_FAILURE, said, data)


COMMAND = Command("c-api", c_api)
