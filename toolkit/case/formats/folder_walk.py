"""Walk the folders below one, in order; a tree that is too large ends the walk, not the day."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ctk.toolkit.case.formats.limits import FOLDERS


@dataclass(slots=True)
class Walk:
    """The folders at and below one; links are not followed.

    Attributes:
        root: Where it starts.
        limit: How many folders are looked into.
        is_cut: Whether there were more; known at the end.
    """

    root: Path
    limit: int = FOLDERS
    is_cut: bool = False

    def __iter__(self) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Yield each folder with the names of its folders, and of its files.

        Whoever removes names of folders from their list keeps the walk out of them.
        """
        for number, (folder, subfolders, files) in enumerate(os.walk(self.root)):
            if number >= self.limit:
                self.is_cut = True
                return
            subfolders.sort()
            yield Path(folder), subfolders, files
