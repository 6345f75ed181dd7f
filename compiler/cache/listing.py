"""The files in the folder of the entries: entries, leftovers of killed processes, foreign files.

There is no index, which could differ from the folder.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctk.compiler.artifacts import partial_files as partial
from ctk.compiler.cache.entry import Label, read_entry, read_label
from ctk.compiler.errors import ContainerError

_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """A file among the entries.

    Attributes:
        path: The file; its name is the digest of its key.
        used: The time of its last use, in seconds since the epoch.
        hits: The number of uses, as far as they were noted.
        problem: Why it is not a valid entry; None if no reason is known.
    """

    path: Path
    nbytes: int
    used: float
    label: Label = field(default_factory=Label)
    hits: int = 0
    problem: str | None = None

    @property
    def digest(self) -> str:
        """The digest of its key."""
        return self.path.name


def files(folder: Path) -> Iterator[EntrySummary]:
    """Yield each entry with its size and age, without opening it."""
    return (entry for entry in _everything(folder) if _DIGEST.fullmatch(entry.path.name))


def entries(folder: Path, hits: Mapping[str, int]) -> list[EntrySummary]:
    """Return the entries with their labels, last used first, unchecked."""
    found: list[EntrySummary] = []
    for entry in files(folder):
        label = read_label(entry.path)
        problem = None if label is not None else "it has no label"
        count = hits.get(entry.digest, 0)
        found.append(replace(entry, label=label or Label(), hits=count, problem=problem))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def check_files(folder: Path) -> list[EntrySummary]:
    """Read and check all files among the entries; return them by name, with their problems."""
    found: list[EntrySummary] = []
    for entry in sorted(_everything(folder), key=lambda entry: entry.path.name):
        if _DIGEST.fullmatch(entry.path.name) is None:
            if not entry.path.name.startswith(partial.PREFIX):
                found.append(replace(entry, problem="it is not an entry"))
            continue
        try:
            label, _ = read_entry(entry.path)
        except FileNotFoundError:  # another process has dropped it
            continue
        except (ContainerError, OSError) as error:
            found.append(replace(entry, problem=str(error).partition("\n")[0]))
        else:
            found.append(replace(entry, label=label))
    return found


def _everything(folder: Path) -> Iterator[EntrySummary]:
    """Yield every file in the folder; none if it cannot be listed."""
    with contextlib.suppress(OSError):
        if folder.is_symlink():  # it leads out of the cache
            return
        for path in list(folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                yield EntrySummary(path, status.st_size, status.st_mtime)
