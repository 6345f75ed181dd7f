"""Which folder the persistent cache is in, and whether it may be used.

What is in the cache is run later. So nobody else may write there: the folder is made 0700, and one
that belongs to somebody else, or that others may write to, is not used. No cache is a slower
program, not a broken one: whatever is wrong with it is one warning in the log of `ctk.cache`.

    ~/.cache/ctk/            or CTK_CACHE_DIR
        entries/<digest>     one container for each entry (compiler/cache/store.py)
        locks/<digest>       held while an entry is made
        notes.sqlite3        tuning choices, and what happened lately (notes.py)

What it does not do: look at the folders above it. Whoever may rename those can do more than this.
"""

import functools
import logging
import os
import stat
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import StorageError
from ctk.compiler.options.environment import cache_settings

log = logging.getLogger("ctk.cache")

_OFF = "the cache is not used"


def cache_folder() -> Path | None:
    """Return the folder of the cache, made and checked; None where it is off or cannot be used."""
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
    """Return a folder of which only this user has the say, made if it is missing; links resolved.

    Raises:
        StorageError: It cannot be made, or somebody else has a say in it.
    """
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
    """Return who else has a say in a file or folder; None if only this user has."""
    if status.st_uid != os.geteuid():
        return f"belongs to somebody else (user {status.st_uid}; this is {os.geteuid()})"
    if stat.S_IMODE(status.st_mode) & 0o022:
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def subfolder(root: Path, name: str) -> Path:
    """Return a folder within the cache, made if it is missing; a link in its place is refused.

    Raises:
        StorageError: Something else is in its place, or it cannot be made.
    """
    folder = root / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise StorageError(f"{folder} cannot be used: {error.strerror or error}") from error
    problem = access_problem(status) if stat.S_ISDIR(status.st_mode) else "is no folder"
    if problem is not None:
        raise StorageError(f"{folder} {problem}; next: remove it")
    return folder


def warn_once(folder: Path | None, message: str) -> None:
    """Write a warning to the log, the first one of this process about a folder; others at DEBUG."""
    said = _access_problem(folder)
    log.log(logging.DEBUG if said else logging.WARNING, "%s", message)
    said.append(message)
    del said[1:]


@functools.cache
def _access_problem(folder: Path | None) -> list[str]:
    """Return what was said of a folder in this process: a list that grows to one."""
    return []


def forget_warnings() -> None:
    """Let the next warning about each folder be a first one again."""
    _access_problem.cache_clear()
