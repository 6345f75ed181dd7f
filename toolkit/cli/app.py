"""`ctk`: the table of commands. Adding one is a file in this folder and a line here.

Nothing heavy is imported here or at the top of a command's file, so that `ctk --help` answers at
once.
"""

import sys
from typing import Annotated, NoReturn, cast

import typer
from typer.main import get_command

from ctk.toolkit.cli.commands import (
    bisect_pass,
    bisect_version,
    c_api,
    cache_clear,
    cache_ls,
    cache_verify,
    cache_why,
    check,
    ci_summary,
    compile,
    diagnose,
    diff,
    doctor,
    explain,
    issue,
    ls,
    minify,
    report,
    repro,
    run,
    show,
    verify_rules,
)
from ctk.toolkit.cli.shell.command_context import Command, guard_command
from ctk.toolkit.cli.shell.entry import Entry, Said, leave
from ctk.toolkit.cli.shell.errors import answer_for
from ctk.toolkit.cli.shell.options import JsonOutput, QuietOutput, VerboseOutput
from ctk.toolkit.cli.shell.streams import prepare_streams
from ctk.toolkit.cli.shell.supervision import supervise

COMMANDS: tuple[Command, ...] = (
    diagnose.COMMAND,
    check.COMMAND,
    bisect_pass.COMMAND,
    bisect_version.COMMAND,
    minify.COMMAND,
    repro.COMMAND,
    issue.COMMAND,
    diff.COMMAND,
    run.COMMAND,
    ci_summary.COMMAND,
    ls.COMMAND,
    show.COMMAND,
    report.COMMAND,
    verify_rules.COMMAND,
    cache_ls.COMMAND,
    cache_verify.COMMAND,
    cache_clear.COMMAND,
    cache_why.COMMAND,
    doctor.COMMAND,
    explain.COMMAND,
    compile.COMMAND,
    c_api.COMMAND,
)

GROUPS = {"cache": "Look at the persistent cache, check it, clear it."}
"""Groups of commands whose names have two words, each with its help."""

HELP = """Name the pass, rewrite and node that make a PyTorch program compile wrongly.

Start with `ctk diagnose FILE.py`, or with `ctk run SCRIPT` for a program that calls torch.compile.

Exit codes of every command: 0 no failure, 1 failure found, 2 usage, 125 cannot tell (also after
Ctrl-C, and when the answer cannot be written). The answer is the first line of stdout; the output
of the program itself goes to stderr.
"""

PASS_ON = {
    "allow_extra_args": True,
    "ignore_unknown_options": True,
    "allow_interspersed_args": False,
}


def build_app() -> typer.Typer:
    """Return the Typer application made from `COMMANDS`."""
    app = typer.Typer(
        name="ctk",
        cls=Entry,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=HELP,
    )
    app.callback()(root)
    groups = {
        name: typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=text)
        for name, text in GROUPS.items()
    }
    for name, group in groups.items():
        app.add_typer(group, name=name)
    for command in COMMANDS:
        group, _, name = command.name.rpartition(" ")
        settings = PASS_ON if command.passes_arguments_on else {}
        (groups[group] if group else app).command(
            name, cls=command.parser, context_settings=settings
        )(guard_command(command))
    return app


def show_version(wanted: bool) -> None:
    """Print the version and exit, if it is wanted."""
    if wanted:
        from importlib.metadata import version as version_of

        print(f"ctk {version_of('ctk')}")
        raise typer.Exit


def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=show_version
        ),
    ] = False,
    json_output: JsonOutput = False,
    quiet: QuietOutput = False,
    verbose: VerboseOutput = False,
) -> None:
    """Handle the options that stand before a command."""


def run_line() -> None:
    """Run the command line of this process; it ends with an exit."""
    prepare_streams()
    supervise(COMMANDS)
    build_app()(prog_name="ctk")


def leave_interrupted(interrupt: KeyboardInterrupt) -> NoReturn:
    """Print the answer for an interruption outside of a command, and exit."""
    entry = cast("Entry", get_command(build_app()))
    prepare_streams()
    leave(Said("ctk", answer_for(interrupt), entry.wants_json(sys.argv[1:])))
