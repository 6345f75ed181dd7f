"""The folder of the persistent cache, and whether it is safe to use.

Its content is run later, so no other user may write there: the folder is made 0700, and a folder
that another user owns or may write to is not used. Without a cache a program is slower, not broken:
every problem is one warning in the log of `ctk.cache`.

    ~/.cache/ctk/            or CTK_CACHE_DIR
        entries/<digest>     one container for each entry (compiler/cache/store.py)
        locks/<digest>       held while an entry is made
        notes.sqlite3        tuning choices, and recent events (notes.py)

The folders above it are not checked: a user who may rename those can do more than this.
"""

import functools
import logging
import os
import stat
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import StorageError
from ctk.compiler.options.environment import cache_settings
from ctk.compiler.posix import require_posix

log = logging.getLogger("ctk.cache")

_OFF = "the cache is not used"


def cache_folder() -> Path | None:
    """Return the folder of the cache, made and checked; None if it is off or cannot be used."""
    settings = cache_settings()
    if settings.is_on is False:
        return None
    if settings.folder is None:
        warn_once(None, f"{_OFF}: this user has no home; next: set CTK_CACHE_DIR to a folder")
        return None
    try:
        return private_folder(settings.folder)
    except StorageError as error:
        warn_once(settings.folder, f"{_OFF}: {error}")
        return None


def private_folder(folder: Path) -> Path:
    """Return a folder that only this user can change, made if it is missing; links resolved.

    Raises:
        StorageError: It cannot be made, or another user can change it.
    """
    require_posix("the persistent cache")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        real = folder.resolve(strict=True)
        problem = access_problem(real.lstat())
    except (OSError, RuntimeError) as error:  # RuntimeError: a circle of links
        raise StorageError(f"{folder} cannot be used: {error}; next: set CTK_CACHE_DIR") from error
    if problem is not None:
        advice = f"chmod go-w {quote(str(real))}, or set CTK_CACHE_DIR to a folder of your own"
        raise StorageError(f"{real} {problem}; next: {advice}")
    return real


def access_problem(status: os.stat_result) -> str | None:
    """Return which other user can change a file or folder; None if only this user can."""
    if status.st_uid != os.geteuid():
        return f"belongs to another user (user {status.st_uid}; this is {os.geteuid()})"
    if stat.S_IMODE(status.st_mode) & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def subfolder(root: Path, name: str) -> Path:
    """Return a folder within the cache, made if it is missing; a link in its place is refused.

    Raises:
        StorageError: Another file is in its place, or it cannot be made.
    """
    folder = root / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise StorageError(f"{folder} cannot be used: {error.strerror or error}") from error
    problem = access_problem(status) if stat.S_ISDIR(status.st_mode) else "is not a folder"
    if problem is not None:
        raise StorageError(f"{folder} {problem}; next: remove it")
    return folder


def warn_once(folder: Path | None, message: str) -> None:
    """Log a warning, the first about a folder in this process; later ones at DEBUG."""
    said = _warnings_of(folder)
    log.log(logging.DEBUG if said else logging.WARNING, "%s", message)
    said.append(message)
    del said[1:]


@functools.cache
def _warnings_of(folder: Path | None) -> list[str]:
    """Return the warnings about a folder in this process: a list that grows to one."""
    return []


def forget_warnings() -> None:
    """Make the next warning about each folder count as the first."""
    _warnings_of.cache_clear()
