"""Locks across processes, one file each; the kernel frees the lock of a process that dies.

`filelock` uses `flock`. The holder removes the file before it frees the lock; a process that waited
for a removed file tries again (filelock looks at the number of links). A killed holder leaves an
empty file, which the next holder takes, or `sweep` removes. Machines that share a folder without
`flock` are not kept apart.
"""

import contextlib
from collections.abc import Generator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def hold(path: Path, seconds: float) -> Generator[bool]:
    """Hold the lock of a file, or wait for it no longer than some seconds.

    Yields:
        Whether it is held; False if another process still holds it.

    Raises:
        OSError: The file cannot be made, or the file system has no locks.
    """
    lock = FileLock(path, timeout=seconds, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        lock.release()


def sweep(folder: Path) -> None:
    """Remove the files of locks that no process holds: leftovers of killed processes."""
    with contextlib.suppress(OSError):
        if folder.is_symlink():  # it leads out of the cache
            return
        for path in list(folder.iterdir()):
            with contextlib.suppress(OSError), hold(path, 0):
                pass
