"""Walk the folders below a root in order, up to a limit."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ctk.toolkit.case.formats.limits import FOLDERS


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
