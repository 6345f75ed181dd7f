"""`ctk bisect-pass`: the guilty pass, then its rewrite, then the proof by counterfactual."""

from dataclasses import fields
from typing import Annotated

from ctk.compiler.errors import ConfigError
from ctk.toolkit.cli.commands.bisect_command import answer_for_command, command_words
from ctk.toolkit.cli.commands.diagnose import answer_of_diagnosis
from ctk.toolkit.cli.shell.answer import Answer
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import BisectOptions
from ctk.toolkit.options import AskOptions, Flag, flag_of, keywords_of


def bisect_pass(
    options: BisectOptions,
    subject: Annotated[
        str,
        argument(
            "[CASE]",
            "As for `ctk check`; none with --command, or a command after `--`.",
            complete_case,
        ),
    ] = "",
    words: Annotated[list[str] | None, argument("[-- CMD...]", hidden=True)] = None,
    command: Annotated[
        str,
        Flag(
            ("--command",),
            "A whole program, as shell words in quotes: it is run again and again "
            "without some passes. Exit code 0 is good, 125 cannot tell, another one bad. "
            "Also as single words: ctk bisect-pass -- python train.py --steps 1",
            metavar="CMD",
        ),
    ] = "",
) -> Answer:
    """Find the guilty pass, rewrite and node.

    Proves it by compiling without that rewrite alone, and writes diagnosis.json. The case is not
    made smaller. With --command the answers are kept, and the program chooses the target.
    """
    words_of_command = command_words(command, [subject, *(words or [])])
    if words_of_command:
        _refuse_options_of_cases(options)
        return answer_for_command(
            words_of_command, options.timeout_seconds, out=options.out, resume=options.resume
        )
    if not subject:
        raise ConfigError("give a CASE, or a program: --command CMD, or its words after --")
    from ctk.toolkit.operations.bisect import bisect

    with progress() as report:
        diagnosis = bisect(subject, say=report, **keywords_of(options))
    return answer_of_diagnosis(diagnosis)


def _refuse_options_of_cases(options: BisectOptions) -> None:
    """Refuse options of a compile: a command compiles with its own.

    Raises:
        ConfigError: Such an option is given.
    """
    for field in fields(AskOptions):
        flag, value = flag_of(field.type), getattr(options, field.name)
        is_given = (value or None) != (field.default or None)
        if flag is not None and is_given and field.name != "timeout_seconds":
            raise ConfigError(
                f"{flag.names[0].partition('/')[0]} is about a CASE; a command chooses its own "
                "(it takes --timeout, --out and --resume)"
            )


COMMAND = Command("bisect-pass", bisect_pass)
