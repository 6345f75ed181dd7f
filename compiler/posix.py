"""The parts of POSIX that Windows lacks: a substitute where there is one, else a refusal.

    open flags      a missing one is 0; without `O_NOFOLLOW` a link is looked for before
    locks           `lock_file` waits on POSIX, and does nothing elsewhere: one writer is the rule
    forks, groups   `require_posix("isolate=True")` raises, with the next step

No test has run on Windows: `tests/unit/cli/test_without_posix.py` runs commands on Linux
without the names that Windows lacks.
"""

import contextlib
import errno
import importlib
import os
import sys
from pathlib import Path
from threading import Lock
from typing import Any

from ctk.compiler.errors import UnsupportedPlatform

IS_POSIX = hasattr(os, "fork")


def _flags(*names: str) -> int:
    return sum(getattr(os, name, 0) for name in names)


_OPENED = _flags("O_CLOEXEC", "O_NOINHERIT", "O_BINARY")
READ = os.O_RDONLY | _flags("O_NONBLOCK") | _OPENED
"""To read a file that may be a pipe or a device, which is not waited for."""

NO_LINK = _flags("O_NOFOLLOW")
NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | NO_LINK | _OPENED
APPENDED = os.O_RDWR | os.O_CREAT | os.O_APPEND | NO_LINK | _OPENED


def require_posix(subject: str) -> None:
    """Refuse a feature that forks processes, leads process groups or locks files.

    Raises:
        UnsupportedPlatform: On Windows.
    """
    if not IS_POSIX:
        raise UnsupportedPlatform(f"{subject} needs POSIX (process groups, fork): use WSL or Linux")


def refuse_link(path: Path) -> None:
    """Raise for a link where the system cannot refuse it while it opens the file.

    Raises:
        OSError: It is a link, with the number that `O_NOFOLLOW` gives.
    """
    if not NO_LINK and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def hold_in_forks(lock: Lock) -> None:
    """Let a fork wait for a lock, so that no child has it taken for ever."""
    if IS_POSIX:
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )


def lock_file(handle: int) -> None:
    """Wait for the lock of an open file, which closing releases; a disk may have no locks."""
    if IS_POSIX:
        fcntl: Any = importlib.import_module("fcntl")
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)


def claim_file(handle: int) -> None:
    """Lock an open file for this process alone.

    Raises:
        OSError: Another process has it (`EACCES`, `EAGAIN`), or the disk has no locks.
    """
    fcntl: Any = importlib.import_module("fcntl")
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def read_at(handle: int, nbytes: int, offset: int) -> bytes:
    """Read at an offset of an open file; elsewhere than on POSIX, this moves its position."""
    if IS_POSIX:
        return os.pread(handle, nbytes, offset)
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, nbytes)


def address_limit_nbytes() -> int | None:
    """Return this process's own limit of addresses (`ulimit -v`); None without one."""
    if not IS_POSIX:
        return None
    resource: Any = importlib.import_module("resource")
    limit: int = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def memory_of_machine() -> int:
    """Return the bytes of memory of this machine; the largest number if it is not known."""
    if not IS_POSIX:
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def home_of_user() -> str | None:
    """Return the home folder of the user's entry in the system; None without an entry."""
    if not IS_POSIX:
        return None
    try:
        return importlib.import_module("pwd").getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container whose user has no entry
        return None
