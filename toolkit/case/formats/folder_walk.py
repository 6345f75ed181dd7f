"""Walk the folders below a root in order, up to a limit; require that a folder is there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import NoSuchCase
from ctk.compiler.usercode.references import near_file
from ctk.toolkit.case.formats.limits import FOLDERS


def require_folder(folder: Path, next_step: str = "") -> None:
    """Raise unless the folder exists.

    Args:
        next_step: Empty: list the cases in the nearest folder above that exists.

    Raises:
        NoSuchCase: There is nothing of this name, or a file; with the next step.
    """
    if folder.is_dir():
        return
    above = next((parent for parent in folder.parents if parent.is_dir()), Path())
    next_step = next_step or f"list the cases: ctk ls {quote(str(above))}"
    if folder.exists():
        raise NoSuchCase(f"{folder} is a file, not a folder; {next_step}")
    raise NoSuchCase(f"no such folder: {folder}{near_file(folder)}; {next_step}")


@dataclass(slots=True)
class Walk:
    """The root and the folders below it; links are not followed.

    Attributes:
        is_cut: Whether there were more; valid after the walk.
    """

    root: Path
    limit: int = FOLDERS
    is_cut: bool = False

    def __iter__(self) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Yield each folder with the names of its folders, and of its files.

        The walk skips folders that the caller removes from the list of names.
        """
        for number, (folder, subfolders, files) in enumerate(os.walk(self.root)):
            if number >= self.limit:
                self.is_cut = True
                return
            subfolders.sort()
            yield Path(folder), subfolders, files
