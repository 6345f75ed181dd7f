"""The answer of `ctk bisect-pass --command CMD`: bisect the passes of a whole program."""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ctk.compiler.errors import ConfigError
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.progress import progress

if TYPE_CHECKING:
    from ctk.toolkit.operations.command.command_search import CommandSearch


def command_words(command: str, rest: Sequence[str]) -> list[str]:
    """Return the words of a command; empty for a single case.

    Args:
        command: The value of `--command`: one quoted string, or the program alone, whose arguments
            are then the rest.
        rest: Words after it, or after `--`.

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
    if more and len(words) > 1:
        raise ConfigError(
            f"give a CASE, or a program with --command, and not both: {shlex.join(more)}"
        )
    return [*words, *more]


def answer_for_command(
    words: Sequence[str], seconds: float | None, *, out: str | Path | None, resume: bool = False
) -> Answer:
    """Bisect a command and return the answer."""
    from ctk.toolkit.operations.session.command_bisection import bisect_with_journal

    with progress() as report:
        found, folder = bisect_with_journal(
            words, seconds=seconds, out=out, resume=resume, say=report
        )
    return answer_of_search(shlex.join(words), found, folder)


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
    graphs = f"{found.graphs} graph{'s' * (found.graphs != 1)}"
    yield f"cost       {found.runs} runs of the command, {graphs}"
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
