"""Places in the files of a repository, for annotations: relative to its root, never outside."""

import os
from dataclasses import dataclass
from pathlib import Path

from ctk.toolkit.case.formats.plain_text import is_plain
from ctk.toolkit.ci.outcome import Outcome

PATH_LENGTH = 1_000


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; `path` is relative to the root of the repository, with `/`.

    Attributes:
        line: From 1; None for the whole file.
    """

    path: str
    line: int | None = None


def find_repository() -> Path:
    """Return the root of the repository around the working folder, else that folder."""
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if (each / ".git").exists()), here)


def find_place(outcome: Outcome, root: Path) -> Place | None:
    """Return the place of an outcome, else the file of its test; None if both are elsewhere.

    Only the text counts: no file is looked at.
    """
    file, _, line = outcome.place.rpartition(":")
    if line.isascii() and line.isdigit() and 0 < len(line) < 8 and int(line):
        path = _inside(file, root)
        if path is not None:
            return Place(path, int(line))
    file, suffix, _ = outcome.test.removeprefix("pytest:").partition(".py")
    path = _inside(f"{file}{suffix}", root) if suffix else None
    return Place(path) if path is not None else None


def _inside(file: str, root: Path) -> str | None:
    """Return the path relative to the root of a file named from the working folder."""
    if not file or not is_plain(file, PATH_LENGTH):
        return None
    path = os.path.relpath(os.path.normpath(Path.cwd() / file), root)
    is_outside = path.startswith(os.pardir) or path == os.curdir
    return None if is_outside else Path(path).as_posix()
