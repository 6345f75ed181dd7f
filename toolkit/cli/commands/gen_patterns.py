"""`ctk gen-patterns`: trace the compiler's own patterns and write them as Python files."""

from typing import Annotated

import typer

from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command


def gen_patterns(
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; list the stale patterns.")
    ] = False,
) -> Answer:
    """Write the compiler's patterns as files.

    For people who change ctk: a process loads these files instead of tracing the patterns of
    fuse_attention. A stale pattern is a failure with --check.
    """
    from ctk.compiler.passes.joint.fuse_attention import replacements
    from ctk.compiler.patterns import generated
    from ctk.compiler.patterns.replacement import search_pattern

    stale: list[str] = []
    all_of_them = replacements()
    for replacement in all_of_them:
        name = replacement.name
        traced = search_pattern(replacement)
        written = generated.read(generated.path_of(name)).get(name, ())
        if generated.source_of({name: written}) != generated.source_of({name: traced}):
            stale.append(name)
            if not check:
                generated.write(name, traced)
    data = {"patterns": len(all_of_them), "stale": stale, "written": not check}
    if check and stale:
        message = f"{len(stale)} of {len(all_of_them)} patterns are stale; run ctk gen-patterns"
        return Answer(ExitCode.FAILURE, message, data, tuple(stale))
    what = "stale" if check else "written"
    return Answer(ExitCode.NO_FAILURE, f"{len(stale)} of {len(all_of_them)} {what}", data)


COMMAND = Command("gen-patterns", gen_patterns)
