"""Locks across processes, one file each: no dead process holds one, and no files are left behind.

`filelock` asks the kernel (`flock`), which lets go when the process ends, however it ends. The
holder removes the file before it lets go; whoever waits for a removed file begins anew (filelock
looks at the number of links). A killed holder leaves an empty file, which the next one takes, or
`sweep` removes.

What it does not do: hold apart what is on two machines that share a folder without `flock`.
"""

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path

from filelock import FileLock, Timeout


@contextlib.contextmanager
def hold(path: Path, seconds: float) -> Generator[bool]:
    """Hold the lock of a file, or wait for it no longer than some seconds.

    Yields:
        Whether it is held. False: somebody else holds it still.

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
    """Remove the files of locks that nobody holds: those that killed processes left."""
    for path in _files(folder):
        with contextlib.suppress(OSError), hold(path, 0):
            pass


def _files(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        if folder.is_symlink():  # it leads out of the cache
            return
        yield from list(folder.iterdir())
