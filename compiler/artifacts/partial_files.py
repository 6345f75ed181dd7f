"""Files while they are written: their names, and the leftovers of killed processes.

A name holds its process, so that a later process can see whether the writer still runs.
"""

import contextlib
import re
import secrets
import time
from pathlib import Path

from ctk.compiler.usercode.process_name import boot_name, process_name, start_time

PREFIX = ".ctk-partial-"

_STALE_SECONDS = 3600.0  # no file takes so long to be written
_WRITER = re.compile(rf"{re.escape(PREFIX)}(\w+)-(\d+)-(\d+)-\w+")


def partial_path(path: Path) -> Path:
    """Return a unique path beside a file, at which it is written until it is whole."""
    return path.with_name(f"{PREFIX}{process_name()}-{secrets.token_hex(4)}")


def sweep(folder: Path) -> None:
    """Remove the partial files of a folder whose writer is gone, or has written for too long."""
    with contextlib.suppress(OSError):
        for path in list(folder.glob(f"{PREFIX}*")):
            with contextlib.suppress(OSError):
                if _is_left(path):
                    path.unlink()


def _is_left(path: Path) -> bool:
    match = _WRITER.fullmatch(path.name)
    if match is None:
        return False
    there, pid, start = match[1], int(match[2]), int(match[3])
    is_here = there == boot_name() and start > 0  # 0: the start is unknown on this system
    is_gone = is_here and start_time(pid) != start
    return is_gone or time.time() - path.lstat().st_mtime > _STALE_SECONDS
