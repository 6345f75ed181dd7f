"""Start an operation in a new folder, or resume it in the folder of an earlier run.

A folder without an answer is removed again, so that a mistyped option leaves none behind.
"""

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from ctk.compiler.errors import CaseError, FolderTaken, count_of
from ctk.compiler.options.choices import InputsMode
from ctk.compiler.posix import require_posix
from ctk.toolkit.case.carried_sources import plan_sources
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import make_output_folder
from ctk.toolkit.case.graphs.callables import modules_of_calls
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.options import BisectOptions
from ctk.toolkit.operations.report.as_json import FILE
from ctk.toolkit.operations.session.running_operation import Done, Operation
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.journal import (
    JOURNAL,
    Header,
    Journal,
    OperationName,
    difference,
    has_line,
    read_header,
    resume_journal,
    start_journal,
)
from ctk.toolkit.oracle.answers.journaled import journal_executor
from ctk.toolkit.oracle.answers.resume_command import resume_command
from ctk.toolkit.oracle.executors.base import ONE_JOB, Jobs
from ctk.toolkit.oracle.open_subject import open_subject
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.oracle.questions.choice import NOTHING_CHOSEN, Choice
from ctk.toolkit.processes.link import report_resumable

PREFIXES: Mapping[OperationName, str] = {
    "bisect-pass": "diagnosis",
    "minify": "minimal",
    "diagnose": "diagnosis",
    "bisect-version": "versions",
}
"""Names of folders without `--out`."""

_HARMLESS_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS")

UNTOLD = ("trust", "accept_documented", "thorough")
"""Options that the journal leaves out: the user decides again when it is resumed."""

NO_OPTIONS: Mapping[str, object] = {}


@contextmanager
def open_operation(
    name: OperationName,
    subject: Subject,
    inputs: Inputs | None,
    options: BisectOptions,
    *,
    keep: InputsMode = "full",
    jobs: Jobs = ONE_JOB,
    choice: Choice = NOTHING_CHOSEN,
) -> Generator[Operation]:
    """Load the cases, start the executor, and open the folder; closed at the end.

    Args:
        options: Its options. Without `out` the folder is a new one here, or with `resume` the
            newest of the same case.

    Raises:
        CaseError: There is no such folder to resume, it is in use, or its subject is another one.
        ConfigError: The function that decides cannot be compared with that of the earlier run.
    """
    require_posix(f"{name}, which keeps a journal,")
    started = time.monotonic()
    if options.resume:
        choice.check_resumable()
    with open_subject(subject, inputs, options, jobs) as it:
        digests = Digests()
        told = {**options.told, **jobs.keywords, **choice.told}
        header = _header(name, it.source.spec, told, keep, it.cases, digests)
        header = replace(header, sources={**header.sources, **dict(_files(choice))})
        default = f"{PREFIXES[name]}_{it.source.name}"
        untold = {key: getattr(options, key) for key in UNTOLD if hasattr(options, key)}
        with open_journal(
            options.out, default, header, resume=options.resume, say=options.say, untold=untold
        ) as (journal, folder, go_on):
            oracle = journal_executor(it.executor, journal, digests)
            say = options.say
            run = Operation(it, oracle, journal, digests, folder, keep, say, go_on, started=started)
            try:
                yield run
            except BaseException as error:
                leave(journal, folder, go_on, error, run.found and run.found.minimal)
                raise


@contextmanager
def open_journal(
    out: str | Path | None,
    default: str,
    header: Header,
    *,
    resume: bool,
    say: Say,
    untold: Mapping[str, object] = NO_OPTIONS,
) -> Generator[tuple[Journal, Path, str]]:
    """Open the journal of a new folder or of an earlier run; it is locked until the end.

    Yields:
        The journal, its folder, and the command that resumes.

    Raises:
        CaseError: There is no such folder to resume, it is in use, its subject is another one, or
            the new folder holds an earlier run.
    """
    if resume:
        folder = Path(out).expanduser() if out is not None else _newest(default, header)
        if folder.is_file():
            raise FolderTaken(
                f"{folder} is a file; next: let --out name the folder of the run to resume"
            )
    elif out is not None and (Path(out).expanduser() / JOURNAL).is_file():
        raise FolderTaken(
            f"{out} holds an earlier run; resume it: the same command with --resume, or name "
            "another folder"
        )
    else:
        folder = make_output_folder(out, default)
    with resume_journal(folder, header) if resume else start_journal(folder, header) as journal:
        go_on = resume_command(header, folder, untold)
        report_resumable(folder, go_on)
        if journal.remembered:
            say(f"remembered from an earlier run: {count_of(journal.remembered, 'answer')}")
        yield journal, folder, go_on


def leave(
    journal: Journal,
    folder: Path,
    go_on: str,
    error: BaseException,
    minimal: Path | None = None,
) -> None:
    """Add the kept folder to an exception; a folder without an answer is removed."""
    if journal.is_empty and not (folder / FILE).exists():
        _remove(folder)
        return
    if minimal is not None and minimal.is_dir():
        error.add_note(f"The smallest case so far is kept: {minimal}")
    else:
        error.add_note(f"The results so far are kept: {folder}")
    error.add_note(f"to go on: {go_on}")


def discard(run: Operation) -> None:
    """Remove the folder of an operation that found nothing, unless it holds earlier answers."""
    if run.journal.remembered:
        run.say(f"{run.folder} is kept: an earlier run has its answers there")
    else:
        _remove(run.folder)


def _remove(folder: Path) -> None:
    with suppress(OSError):
        for name in (JOURNAL, FILE):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def _newest(default: str, header: Header) -> Path:
    """Return the newest folder of the same case that was left unfinished; else the newest."""
    found: list[tuple[bool, float, Path]] = []
    reasons: list[str] = []
    for folder in _folders(default):
        try:
            then = read_header(folder)
            why = difference(then, header) if then else ""
            is_done = has_line(folder, Done)
        except CaseError as error:
            why, is_done = str(error), False
        if why:
            reasons.append(f"\n  {folder}: {why.splitlines()[0]}")
        else:
            found.append((not is_done, (folder / JOURNAL).stat().st_mtime, folder))
    if not found:
        raise FolderTaken(
            f"no folder {default} here has a run of this case to resume; name it with --out, or "
            f"leave out --resume to start{''.join(reasons)}"
        )
    return max(found)[2]


def _folders(default: str) -> Iterator[Path]:
    for folder in sorted(Path().iterdir()):
        is_ours = re.fullmatch(rf"{re.escape(default)}(_\d+)?", folder.name)
        if is_ours and (folder / JOURNAL).is_file():
            yield folder


def _header(
    name: OperationName,
    subject: str | None,
    options: Mapping[str, object],
    keep: InputsMode,
    cases: list[Case],
    digests: Digests,
) -> Header:
    told = {key: value for key, value in options.items() if key not in UNTOLD}
    return Header(
        operation=name,
        subject=subject,
        options=json.loads(json.dumps(told, default=repr)),
        inputs=keep,
        cases=tuple(fingerprint(case, digests) for case in cases),
        sources=dict(_sources(cases)),
        variables=dict(variables()),
    )


def _sources(cases: list[Case]) -> Iterator[tuple[str, str]]:
    """Yield the files of the user that compile a case or that its graph calls, with digests."""
    for case in cases:
        with suppress(CaseError):  # options that no file can hold: an object of the caller
            for place, path in plan_sources(case).copies.items():
                yield place, digest_of(path)
        for module in modules_of_calls(case.graph):
            file = getattr(sys.modules.get(module), "__file__", None)
            if file is not None:
                yield module, digest_of(Path(file))


def _files(choice: Choice) -> Iterator[tuple[str, str]]:
    """Yield the files and the function of the user that decide, with digests."""
    for path in choice.files:
        yield str(path), digest_of(path)
    if choice.code:
        yield f"the function {choice.words}", choice.code


def digest_of(path: Path) -> str:
    """Return the digest of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:  # gone since it was imported, or packed into an archive
        return ""


def variables() -> Iterator[tuple[str, str]]:
    """Yield each environment variable that changes a compile, with a digest of its value."""
    for name, value in os.environ.items():
        is_ours = name in ("CTK_FUEL", "CTK_DISABLE", "CTK_ON_FAILURE")
        if is_ours or (name.startswith("TORCHINDUCTOR_") and name not in _HARMLESS_VARIABLES):
            data = value.encode(errors="surrogateescape")
            yield name, hashlib.sha256(data).hexdigest()
