"""Find the folders of operations below a folder, with the state and the command to resume each.

The files are not trusted, and the command to resume grants no trust.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.compiler.observe import first_line
from ctk.toolkit.case.formats.folder_walk import Walk
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.operations.report.as_json import FILE, Record, read_json
from ctk.toolkit.operations.report.as_text import headline
from ctk.toolkit.operations.session.running_operation import Done
from ctk.toolkit.oracle.answers.journal import JOURNAL, has_line
from ctk.toolkit.oracle.answers.resume_command import resume_hint

BEGUN = "begun: no failure was seen yet"
COMMAND = "the search is done: with --resume the same command shows the answer again"


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """The folder of a bisect-pass, a minify or a diagnose.

    Attributes:
        state: Its state; `unfinished` for a search that a budget has ended.
        age_seconds: Since the last write.
        go_on: The command to resume; None for a finished operation.
    """

    path: Path
    state: str
    answer: str
    problems: tuple[str, ...] = ()
    age_seconds: float = 0.0
    go_on: NextStep | None = None


def find_operations(walk: Walk) -> list[OperationEntry]:
    """Return the operations at or below a folder, by path."""
    operation_entries: list[OperationEntry] = []
    for folder, subfolders, files in walk:
        if not {JOURNAL, FILE}.isdisjoint(files):
            subfolders.clear()
            operation_entries.append(describe(folder))
    return operation_entries


def describe(folder: Path) -> OperationEntry:
    """Return the entry of one operation; a damaged folder is among its `problems`."""
    age, go_on = _age(folder), resume_hint(folder)
    if not (folder / FILE).exists() and is_ended(folder):
        return OperationEntry(folder, "finished", COMMAND, age_seconds=age)
    if not (folder / FILE).exists():
        return OperationEntry(folder, "begun", BEGUN, age_seconds=age, go_on=go_on)
    try:
        record = read_json(folder)
    except CaseError as error:
        problem = one_line(first_line(error))
        return OperationEntry(folder, "unreadable", "", (problem,), age)
    state = "unfinished" if record.state == "finished" and not is_done(record) else record.state
    return OperationEntry(
        folder, state, headline(record), record.problems, age, None if is_done(record) else go_on
    )


def is_ended(folder: Path) -> bool:
    """Return whether the journal of a bisected command has reached its end."""
    try:
        return (folder / JOURNAL).is_file() and has_line(folder, Done)
    except CaseError:
        return False


def is_done(record: Record) -> bool:
    """Return whether an operation has reached its end; a search that a budget has ended has not."""
    return record.state == "finished" and (record.minimal is None or record.minimal.finished)


def _age(folder: Path) -> float:
    written = max(
        (folder / name).stat().st_mtime for name in (JOURNAL, FILE) if (folder / name).exists()
    )
    return max(0.0, datetime.now(UTC).timestamp() - written)
