"""One temporary folder per ctk process: removed at its end, or by the next run if it was killed.

    <tmp>/ctk-run-<place>-<pid>-<start>-<random>/

`place` stands for the machine's boot and the process namespace, so that a process id is only looked
up where it was given. With the start of the process, `pid` names one process for good. What a
killed process started carries the same name in the variable `CTK_OWNER`: the sweep ends it.

What it does not do: remove the compile cache of Inductor, which belongs to torch and is shared.
"""

import atexit
import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

from ctk.compiler.errors import StorageError
from ctk.toolkit.processes.tree import carriers, end_processes, start_time

OWNER = "CTK_OWNER"
"""Variable of the environment of everything that a ctk process starts: who that was."""

_PREFIX = "ctk-run-"
_NAME = re.compile(rf"{_PREFIX}(?P<owner>(?P<place>[0-9a-f]{{8}})-(?P<pid>\d+)-(?P<start>\d+))-\w+")


def owner() -> str:
    """Return the name of this process that no other process has: `place-pid-start`."""
    pid = os.getpid()
    return f"{_place()}-{pid}-{start_time(pid) or 0}"


def scratch_root() -> Path:
    """Return this process's temporary folder, made with the first call; a fork makes its own.

    Raises:
        StorageError: It cannot be made.
    """
    return _root_of(os.getpid())


@cache
def _root_of(pid: int) -> Path:
    try:
        root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner()}-"))
    except OSError as error:
        raise StorageError(
            f"no temporary folder can be made: {error}\n"
            "next: let TMPDIR name a folder that can be written"
        ) from error

    def leave_nothing() -> None:
        if os.getpid() == pid:  # a fork that ends leaves it to its parent
            remove_folder(root)

    atexit.register(leave_nothing)
    return root


def remove_folder(folder: Path) -> None:
    """Remove a folder, also one into which a process that is about to die still writes."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.02)


def sweep() -> list[Path]:
    """End and remove what ctk processes that were killed have left; return the folders.

    Only folders of this user, of processes that were started here and are dead.
    """
    removed: list[Path] = []
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            dead = _dead_owner(folder)
            if dead is not None:
                end_processes(carriers(f"{OWNER}={dead}"))
                remove_folder(folder)
                removed.append(folder)
    return removed


def _dead_owner(folder: Path) -> str | None:
    """Return the owner that a folder's name tells, if that is a process of ours and dead."""
    name = _NAME.fullmatch(folder.name)
    if name is None or name["place"] != _place() or folder.is_symlink():
        return None
    with contextlib.suppress(OSError):
        if folder.stat().st_uid != os.getuid():
            return None
    is_alive = (start_time(int(name["pid"])) or 0) == int(name["start"])
    return None if is_alive or not Path("/proc/self").exists() else name["owner"]


@cache
def _place() -> str:
    """Return eight hex digits for this boot of this machine, and this namespace of processes."""
    facts: list[str] = []
    for path in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        with contextlib.suppress(OSError):
            facts.append(Path(path).read_text())
    with contextlib.suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=4).hexdigest()
