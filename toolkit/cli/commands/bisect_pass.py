"""`ctk bisect-pass`: the guilty pass, then its rewrite, then the proof by counterfactual."""

from dataclasses import dataclass, fields
from typing import Annotated

import typer

from ctk.compiler.errors import ConfigError
from ctk.toolkit.cli.commands.bisect_command import answer_for_command, command_words
from ctk.toolkit.cli.commands.diagnose import answer_of_diagnosis
from ctk.toolkit.cli.shell.answer import Answer
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import (
    WHAT,
    IsolationOptions,
    OutOption,
    ResumeOption,
    SubjectOptions,
)
from ctk.toolkit.cli.shell.progress import progress


@dataclass(frozen=True, slots=True)
class SubjectOrCommand(SubjectOptions):
    """What to work on: a case, or a command.

    Attributes:
        words: The words of a command that follow `--`; the first one is the subject.
    """

    subject: Annotated[
        str,
        typer.Argument(
            metavar="[CASE]",
            help="As for `ctk check`; none with --command, or a command after `--`.",
            show_default=False,
            autocompletion=complete_case,
        ),
    ] = ""
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD...]", show_default=False, hidden=True)
    ] = None
    command: Annotated[
        str,
        typer.Option(
            "--command",
            metavar="CMD",
            help="A program that is no case, as shell words in quotes: it is run again and again "
            "without some passes. Exit code 0 is good, 125 cannot tell, another one bad. "
            "Also as single words: ctk bisect-pass -- python train.py --steps 1",
            show_default=False,
            rich_help_panel=WHAT,
        ),
    ] = ""


def bisect_pass(
    subject: SubjectOrCommand, out: OutOption, resume: ResumeOption, isolation: IsolationOptions
) -> Answer:
    """Find the guilty pass, rewrite and node.

    Proves it by compiling without that rewrite alone, and writes diagnosis.json. The case is not
    made smaller. With --command the answers are kept, and the target is what the program compiles
    with.
    """
    words = command_words(subject.command, [subject.subject, *(subject.words or [])])
    if words:
        _refuse_options_of_cases(subject, isolation)
        return answer_for_command(words, isolation.timeout, out=out.out, resume=resume.resume)
    if not subject.subject:
        raise ConfigError("give a CASE, or a program: --command CMD, or its words after --")
    from ctk.toolkit.operations.bisect import bisect

    with progress() as report:
        diagnosis = bisect(
            subject.subject,
            out=out.out,
            resume=resume.resume,
            say=report,
            **subject.keywords(),
            **isolation.keywords(),
        )
    return answer_of_diagnosis(diagnosis)


def _refuse_options_of_cases(subject: SubjectOrCommand, isolation: IsolationOptions) -> None:
    """Refuse what would say how to compile a case: a command compiles as it does.

    Raises:
        ConfigError: Such an option is given.
    """
    own = ("subject", "words", "command", "timeout")
    given = [
        field.name.replace("_", "-")
        for group in (subject, isolation)
        for field in fields(group)
        if field.name not in own and (getattr(group, field.name) or None) != (field.default or None)
    ]
    if given:
        raise ConfigError(
            f"--{given[0]} is about a CASE; a command compiles with what it names itself "
            "(--timeout, --out and --resume are for commands, too)"
        )


COMMAND = Command("bisect-pass", bisect_pass)
