"""The bisection of a command, with its answers on disk, so that it can be resumed.

OUT/journal.jsonl     the result of each run; with `--resume` none is run again

There is no diagnosis: a command is not a case, and cannot be reduced.
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
    digest_of,
    leave,
    open_journal,
    variables,
)
from ctk.toolkit.operations.session.running_operation import Done
from ctk.toolkit.oracle.answers.journal import Header, Journal
from ctk.toolkit.oracle.progress import Say, silent

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
    """Bisect a command with every answer on disk at once; return the result and the folder.

    Args:
        out: The folder; None for a new one here, or with `resume` the newest of the same command.

    Raises:
        CaseError: There is no such folder to resume, it is in use, or its subject is another one.
        CaptureError, ProgramError: See `bisect_command`.
    """
    header = _header(words, seconds)
    script = next((word for word in words if word.endswith(".py")), words[0])
    default = f"{PREFIXES['bisect-pass']}_{Path(script).stem or 'command'}"
    with open_journal(out, default, header, resume=resume, say=say) as (journal, folder, go_on):
        try:
            found = bisect_command(
                words, seconds=seconds, say=say, run=_run_with_journal(journal, run)
            )
            journal.note("", Done())
        except BaseException as error:
            leave(journal, folder, go_on, error)
            raise
    return found, folder


def _run_with_journal(journal: Journal, run: Run) -> Run:
    """Return a function that runs a command unless the journal has the result.

    The second run of a question has a result of its own.
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
            if named:  # only the suspects of the first run are read
                known = replace(known, asked=())
            journal.note(key, known)
        return known

    return ask


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


def _digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode(errors="surrogateescape")).hexdigest()
