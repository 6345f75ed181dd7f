"""`ctk bisect-pass`: the guilty pass, then its rewrite, then the proof by counterfactual.

Of one case; with `--command` of a whole program, which is run again and again.
"""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer.core import TyperCommand

from ctk.compiler.errors import ConfigError, count_of
from ctk.toolkit.cli.commands.diagnose import answer_of_diagnosis
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.exit_codes import apply_acceptance
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import BisectOptions
from ctk.toolkit.options import AskOptions, Flag, flag_of, keywords_of

if TYPE_CHECKING:
    from ctk.toolkit.operations.command.command_search import CommandSearch


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
        from ctk.toolkit.operations.session.command_bisection import bisect_with_journal

        seconds, out, resume = options.timeout_seconds, options.out, options.resume
        with progress() as report:
            found, folder = bisect_with_journal(
                words_of_command, seconds=seconds, out=out, resume=resume, say=report
            )
        return answer_of_search(shlex.join(words_of_command), found, folder)
    if not subject:
        raise ConfigError("give a CASE, or a program: --command CMD, or its words after --")
    from ctk.toolkit.operations.bisect import bisect

    with progress() as report:
        diagnosis = bisect(subject, say=report, **keywords_of(options))
    return apply_acceptance(answer_of_diagnosis(diagnosis), diagnosis.judgement, options)


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


def command_words(command: str, rest: Sequence[str]) -> list[str]:
    """Return the words of a command; empty for a single case.

    Args:
        command: The value of `--command`: one quoted string, or the program alone, whose arguments
            are then the rest. A value with `--` first has all words.
        rest: Words after it.

    Raises:
        ConfigError: The words are not a command.
    """
    more = [word for word in rest if word]
    if not command:
        if len(more) < 2:
            return []
        if shutil.which(more[0]) is None:
            raise ConfigError(
                f"one CASE, or a command whose first word is a program: {more[0]!r} is none"
            )
        return more
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--command {command!r}: {error}") from error
    if not words or command == "--":
        raise ConfigError(
            f"--command {command!r} is not a command; next: ctk bisect-pass --command 'python "
            "train.py --steps 1', or ctk bisect-pass -- python train.py --steps 1"
        )
    is_dashed = words[0] == "--"
    words = words[is_dashed:]
    if is_dashed and shutil.which(words[0]) is None:
        is_case = Path(words[0]).is_dir() or words[0].endswith(".py")
        hint = f"; for a case: ctk bisect-pass {shlex.quote(words[0])}" if is_case else ""
        raise ConfigError(f"{words[0]!r} is not a program that can be executed{hint}")
    if more and (is_dashed or len(words) > 1):
        raise ConfigError(
            f"give a CASE, or a program with --command, and not both: {shlex.join(more)}"
        )
    return [*words, *more]


def answer_of_search(command: str, found: "CommandSearch", folder: Path | None = None) -> Answer:
    """Return the answer for a search whose journal is in a folder."""
    data: dict[str, object] = {
        "run": command,
        "outcome": found.first.outcome,
        "ended": found.first.ended,
        "graphs": found.graphs,
        "culprit": asdict(found.culprit) if found.culprit else None,
        "rewrite": asdict(found.rewrite) if found.rewrite else None,
        "confirmed": found.confirmed,
        "is_flaky": found.is_flaky,
        "runs": found.runs,
        "reason": found.reason,
        "folder": str(folder) if folder is not None else None,
    }
    if found.first.outcome == "good":
        return Answer(ExitCode.NO_FAILURE, f"no failure: {command} ends with exit code 0", data)
    if found.first.outcome == "cannot tell":
        return Answer(ExitCode.CANNOT_TELL, f"cannot tell: {command} exits with 125", data)
    if found.is_flaky:
        advice = f"next       make {command} end alike each time: seeds, files, the clock, threads"
        said = f"cannot tell: {command} fails at random: {found.reason}"
        return Answer(ExitCode.CANNOT_TELL, said, data, (advice,))
    return Answer(
        ExitCode.FAILURE, _headline(command, found), data, tuple(_lines(command, found, folder))
    )


def _headline(command: str, found: "CommandSearch") -> str:
    if found.culprit is None:
        return f"{command} fails; no culprit found: {found.reason}"
    proof = "confirmed" if found.confirmed else "not confirmed"
    return f"{command} fails because of {found.culprit.id} in {found.culprit.graph} ({proof})"


def _lines(command: str, found: "CommandSearch", folder: Path | None) -> Iterator[str]:
    from ctk.toolkit.operations.report.phrases import PLACES, label_of

    culprit = found.culprit
    yield f"failure    {found.first.ended}"
    if culprit is None:
        yield f"culprit    unknown: {found.reason}"
    else:
        is_kernel = culprit.kind == "kernel"
        yield f"{label_of(culprit.id, is_kernel=is_kernel):<10} {culprit}"
        yield f"stage      {PLACES[culprit.stage]}"
    if found.rewrite is not None:
        yield f"rewrite    number {found.rewrite.number}: {found.rewrite.rule}"
    if culprit is not None:
        what = "rewrite" if found.rewrite else culprit.kind
        good = f"without that {what} alone the command exits with 0"
        yield f"proof      {good if found.confirmed else f'none: {found.reason}'}"
    yield from (f"excluded   {each}" for each in found.excluded)
    runs, graphs = count_of(found.runs, "run"), count_of(found.graphs, "graph")
    yield f"cost       {runs} of the command, {graphs}"
    yield from [f"written    {folder}"] * (folder is not None)
    step = _next_step(shlex.split(command))
    yield from [f"next       {step}"] * bool(step)


def _next_step(words: Sequence[str]) -> str:
    """Return the command that saves the graphs of a program as cases, which can be made small.

    >>> _next_step(["python", "-u", "train.py", "--steps", "1"])
    'ctk run train.py --steps 1  # saves each graph that fails as a case'
    """
    program, *rest = words
    is_python = Path(program).name.startswith("python")
    while is_python and rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[1:]
    if Path(program).name == "pytest" or (is_python and rest[:2] == ["-m", "pytest"]):
        test = next((word for word in rest if word.partition("::")[0].endswith(".py")), None)
        said = "  # the smallest graph that shows it"
        return f"ctk diagnose {shlex.quote(f'pytest:{test}')}{said}" if test else ""
    script = rest if is_python else words
    if not script or not script[0].endswith(".py"):
        return ""
    return f"ctk run {shlex.join(script)}  # saves each graph that fails as a case"


class WordsAfterDashes(TyperCommand):
    """The parser of bisect-pass: words after `--` are a command, even a single one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after `--` as the value of `--command`, which begins with `--` then."""
        at = args.index("--") if "--" in args else len(args)
        has_option = any(word.partition("=")[0] == "--command" for word in args[:at])
        if args[at + 1 :] and not has_option:
            args = [*args[:at], f"--command={shlex.join(args[at:])}"]
        return super().parse_args(ctx, args)


COMMAND = Command("bisect-pass", bisect_pass, parser=WordsAfterDashes)
