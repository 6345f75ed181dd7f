"""One temporary folder per ctk process: removed at its end, or by the next run if it was killed.

    <tmp>/ctk-run-<place>-<pid>-<start>-<random>/

Place, pid and start name the process (`compiler/usercode/process_name.py`). Its children carry the
same name in the variable `CTK_OWNER`: the sweep ends those of a killed process. The sweep also
removes the folders `ctk-c-...`, in which a process compiled C when it was killed.

It does not remove the compile cache of Inductor, which belongs to torch and is shared.
"""

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

from ctk.compiler.errors import StorageError
from ctk.compiler.usercode.process_name import boot_name, process_name, start_time
from ctk.toolkit.processes.tree import find_carriers, kill_processes

OWNER = "CTK_OWNER"
"""Environment variable that names the ctk process which started a process."""

_PREFIX = "ctk-run-"
_NAME = re.compile(r"ctk-(run|c)-(?P<owner>(?P<place>[0-9a-f]{8})-(?P<pid>\d+)-(?P<start>\d+))-\w+")


def scratch_root() -> Path:
    """Return this process's temporary folder, made with the first call; a fork makes its own.

    Raises:
        StorageError: It cannot be made.
    """
    return _root_of(os.getpid())


@cache
def _root_of(pid: int) -> Path:
    try:
        root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{process_name()}-"))
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
    """Remove a folder; repeat while a process that is about to die still writes into it."""
    for _ in range(5):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.02)


def sweep() -> list[Path]:
    """End the children and remove the folders of killed ctk processes; return the folders.

    Only folders of this user count, of processes that ran on this machine and are dead.
    """
    removed: list[Path] = []
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob("ctk-*"):
            dead = _dead_owner(folder)
            if dead is not None:
                kill_processes(find_carriers(f"{OWNER}={dead}"))
                remove_folder(folder)
                removed.append(folder)
    return removed


def _dead_owner(folder: Path) -> str | None:
    """Return the owner in a folder's name if it is a dead ctk process of this user."""
    name = _NAME.fullmatch(folder.name)
    if name is None or name["place"] != boot_name() or folder.is_symlink():
        return None
    with contextlib.suppress(OSError):
        if folder.stat().st_uid != os.getuid():
            return None
    is_alive = (start_time(int(name["pid"])) or 0) == int(name["start"])
    return None if is_alive or not Path("/proc/self").exists() else name["owner"]
