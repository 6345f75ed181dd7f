"""The size limit of a dump folder: the oldest dumps are removed for new ones.

Only dumps are ever removed: direct subfolders of the dump folder that hold the marker file of ctk.
Dumps of running processes are kept.
"""

import contextlib
import hashlib
import os
import shutil
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.schema import decode, document, write_document
from ctk.toolkit.processes.tree import is_alive

MARKER = ".ctk-dump.json"
"""The file that marks a folder as a dump of ctk."""


@document
@dataclass(frozen=True, slots=True)
class Marker:
    """The writer of a dump (process id, digest of the host's name) and its start time."""

    pid: int
    host: str
    started: float


def write_marker(folder: Path) -> None:
    """Write the marker into a new dump folder."""
    marker = Marker(os.getpid(), _host(), time.time())
    write_text(folder / MARKER, write_document(marker))


def folder_nbytes(folder: Path) -> int:
    """Return the bytes of all files below a folder, of a file with several names once.

    Symbolic links are not followed.
    """
    sizes: dict[tuple[int, int], int] = {}
    for root, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # another process may prune as well
                status = (Path(root) / name).lstat()
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def prune(root: Path, quota_nbytes: int, *, keep: Path) -> tuple[dict[Path, int], int]:
    """Remove the oldest dumps below `root` until all of them fit into the quota.

    Returns:
        The removed dumps with their bytes, and the bytes that remain over the quota.
    """
    sizes = {folder: folder_nbytes(folder) for folder in list_dumps(root)}
    excess = sum(sizes.values()) - quota_nbytes
    removed: dict[Path, int] = {}
    for folder, nbytes in sizes.items():
        if excess <= 0:
            break
        if folder != keep and not _in_use(folder):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                removed[folder] = nbytes
                excess -= nbytes
    return removed, max(excess, 0)


def list_dumps(root: Path) -> list[Path]:
    """Return the dumps directly below `root`, oldest first."""
    if not root.is_dir():
        return []
    ours = [p for p in root.iterdir() if not p.is_symlink() and (p / MARKER).is_file()]
    return sorted(ours, key=lambda folder: (_started(folder), folder.name))


def _host() -> str:
    """Return a digest of the host's name, which does not reveal it."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:12]


def _read_marker(folder: Path) -> Marker | None:
    try:
        return decode(Marker, (folder / MARKER).read_bytes(), where=MARKER)
    except (OSError, CaseError):  # cut off by a crash, or being pruned: counts as old and unused
        return None


def _started(folder: Path) -> float:
    marker = _read_marker(folder)
    return marker.started if marker else 0.0


def _in_use(folder: Path) -> bool:
    """Return whether the process that writes this dump still runs on this host."""
    marker = _read_marker(folder)
    return marker is not None and marker.host == _host() and is_alive(marker.pid)
