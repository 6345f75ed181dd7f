"""The bisection of a command, with its answers on disk: ended, it goes on where it was.

OUT/journal.jsonl     what each run of the command gave; with `--resume` none is run again

What it does not do: write a diagnosis. A command is no case: there is nothing to reduce.
"""

import hashlib
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ctk.toolkit.operations.command.command_run import CommandRun, run_command
from ctk.toolkit.operations.command.command_search import CommandSearch, bisect_command
from ctk.toolkit.operations.command.plan import Suspect
from ctk.toolkit.operations.session.operation_folder import (
    PREFIXES,
    create_journal,
    digest_of,
    reopen_journal,
    variables,
)
from ctk.toolkit.operations.session.running_operation import Done
from ctk.toolkit.oracle.answers.journal import JOURNAL, Header, Journal
from ctk.toolkit.oracle.answers.resume_command import resume_command
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.processes.link import report_resumable

Run = Callable[..., CommandRun]


def bisect_with_journal(
    words: Sequence[str],
    *,
    seconds: float | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    say: Say = silent,
    run: Run = run_command,
) -> tuple[CommandSearch, Path]:
    """Bisect a command; every answer is on disk at once. Returns the folder, too.

    Args:
        words: The program and its arguments.
        seconds: How long one run may take.
        out: The folder; None for a new one here, or with `resume` the newest of the same command.
        resume: Go on where an earlier run was ended.
        say: Told a line per run.
        run: Runs the command; another one in tests.

    Raises:
        CaseError: There is no such folder to go on in, it is in use, or is about something else.
        CaptureError, ProgramError: See `bisect_command`.
    """
    header = _header(words, seconds)
    default = f"{PREFIXES['bisect-pass']}_{_name(words)}"
    open_journal = reopen_journal if resume else create_journal
    journal, folder = open_journal(out, default, header)
    with journal:
        go_on = resume_command(header, folder)
        report_resumable(folder, go_on)
        if journal.remembered:
            say(f"{journal.remembered} answers and results of an earlier run are remembered")
        try:
            found = bisect_command(
                words, seconds=seconds, say=say, run=_journaled_run(journal, run)
            )
            journal.note("", Done())
        except BaseException as error:
            _leave(journal, folder, go_on, error)
            raise
    return found, folder


def _journaled_run(journal: Journal, run: Run) -> Run:
    """Return a function that runs a command unless the journal knows what that gives.

    What is asked a second time has an answer of its own.
    """
    asked = Counter[str]()

    def ask(
        words: Sequence[str], left_out: Iterable[Suspect] = (), *, seconds: float | None = None
    ) -> CommandRun:
        named = sorted(f"{each.kind} {each.number} {each}" for each in left_out)
        key = _digest(*named) if named else "everything"
        asked[key] += 1
        key = key if asked[key] == 1 else f"{key}, time {asked[key]}"
        known = journal.recall(CommandRun, key)
        if known is None:
            known = run(words, left_out, seconds=seconds)
            known = replace(known, asked=()) if named else known  # only the first one's are read
            journal.note(key, known)
        return known

    return ask


def _leave(journal: Journal, folder: Path, go_on: str, error: BaseException) -> None:
    """Say on an exception what is kept; a folder in which nothing was answered goes."""
    if journal.is_empty:
        (folder / JOURNAL).unlink(missing_ok=True)
        folder.rmdir()
        return
    error.add_note(f"What is known so far is kept: {folder}")
    error.add_note(f"to go on: {go_on}")


def _header(words: Sequence[str], seconds: float | None) -> Header:
    files = [word for word in words if Path(word).is_file()]
    return Header(
        operation="bisect-pass",
        subject=None,
        options={"command": shlex.join(words), "timeout_seconds": seconds},
        inputs="full",
        cases=(_digest(*words, str(seconds)),),
        sources={file: digest_of(Path(file)) for file in files},
        variables=dict(variables()),
    )


def _name(words: Sequence[str]) -> str:
    """Return what the folder is called after: the script, or the program."""
    script = next((word for word in words if word.endswith(".py")), words[0])
    return Path(script).stem or "command"


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()
