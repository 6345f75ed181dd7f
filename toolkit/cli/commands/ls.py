"""`ctk ls`: the cases in a folder and which of them fail, and how far its operations are."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType
from rich.table import Table

from ctk.compiler.errors import count_of
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_folder
from ctk.toolkit.cli.shell.options import argument

if TYPE_CHECKING:
    from ctk.toolkit.case.case_listing import CaseEntry
    from ctk.toolkit.operations.session.operation_listing import OperationEntry

UNUSABLE = (
    "unusable: if its program has ended, run it again, with space on the disk of --out (or "
    "CTK_DUMP); then remove the folder: rm -r"
)


def ls(
    folder: Annotated[
        Path | None,
        argument("DIR", "A dump folder (default: CTK_DUMP, else ctk_dumps here).", complete_folder),
    ] = None,
) -> Answer:
    """List the cases and operations in a folder.

    An operation (bisect-pass, minify, diagnose) that is not done is listed with the command that
    goes on.
    """
    from ctk.toolkit.case.case_listing import find_cases
    from ctk.toolkit.case.formats.folder_walk import Walk, require_folder
    from ctk.toolkit.operations.session.operation_listing import find_operations
    from ctk.toolkit.watch.watch_session import dump_folder

    root = dump_folder(folder)
    if folder is None and not root.exists():
        said = f"no dumps yet: there is no {root}; to make some: ctk run SCRIPT"
        return Answer(ExitCode.NO_FAILURE, said, {"cases": [], "operations": []})
    require_folder(root, "name a folder of cases, or none for that of CTK_DUMP")
    walk = Walk(root)
    entries, operations = find_cases(walk), find_operations(Walk(root))
    cut = f"there are more than {walk.limit:,} folders: the others were not looked into"
    data = {
        "folder": str(root),
        "cases": [as_data(entry) for entry in entries],
        "operations": [
            as_data(entry) | {"go_on": entry.go_on and str(entry.go_on)} for entry in operations
        ],
        "is_cut": walk.is_cut,
    }
    body: list[RenderableType] = [rows_of(root, entries)] if entries else []
    body += [UNUSABLE] if any(entry.problem for entry in entries) else []
    body += [*lines_of(root, operations), *([cut] if walk.is_cut else [])]
    said = headline(root, entries, operations)
    return Answer(ExitCode.NO_FAILURE, said, data, tuple(body))


def lines_of(root: Path, operations: "list[OperationEntry]") -> list[str]:
    """Return the lines of each operation: its state, and the command that resumes it."""
    lines: list[str] = []
    for operation in operations:
        age = spoken_age(operation.age_seconds)
        lines.append(
            f"{place_of(operation.path, root)}: {operation.state}, {age}: {operation.answer}"
        )
        lines += [f"  problem: {problem}" for problem in operation.problems]
        lines += [f"  to go on: {operation.go_on}"] if operation.go_on else []
    return lines


def place_of(path: Path, root: Path) -> Path:
    """Return where something is below the folder that was asked about."""
    return path.relative_to(root) if path != root else path


def headline(root: Path, entries: "list[CaseEntry]", operations: "list[OperationEntry]") -> str:
    """Return how many cases there are, how many fail and how many cannot be used."""
    count = len(operations)
    resumable = sum(bool(each.go_on) for each in operations)
    more = f"; {count_of(count, 'operation')}, {resumable} to resume" if count else ""
    failing = sum(entry.failure is not None for entry in entries)
    broken = sum(entry.problem is not None for entry in entries)
    unusable = f", {broken} unusable" if broken else ""
    cases = count_of(len(entries), "case")
    return f"{cases} in {root}, {failing} failing{unusable}{more}"


def rows_of(root: Path, entries: "list[CaseEntry]") -> Table:
    """Return one row per case."""
    rows = table("case", "target", "calls", "age", "state")
    for entry in entries:
        state = entry.problem or entry.failure or "no failure recorded"
        calls = "" if entry.call_nodes is None else str(entry.call_nodes)
        place, age = str(place_of(entry.path, root)), spoken_age(entry.age_seconds)
        rows.add_row(place, entry.target, calls, age, state)
    return rows


def as_data(entry: "CaseEntry | OperationEntry") -> dict[str, object]:
    """Return the JSON form of an entry."""
    changes = {"path": str(entry.path), "age_seconds": round(entry.age_seconds)}
    return {**dataclasses.asdict(entry), **changes}


def spoken_age(seconds: float) -> str:
    """Return an age in its largest unit: `42 s`, `3 min`, `5 h`, `12 d`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


COMMAND = Command("ls", ls)
