"""Name a process so that no other has the name: `place-pid-start`.

Temporary folders carry it, so that a later run knows which were left by a process that was killed.
`place` stands for the machine's boot and the process namespace, so that a process id is only looked
up where it was given. With the start of the process, `pid` names one process for good.
"""

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path


def process_name() -> str:
    """Return the name of this process that no other process has."""
    pid = os.getpid()
    return f"{boot_name()}-{pid}-{start_time(pid) or 0}"


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone or a zombie.

    With the process id it names a process for good: ids are used again.
    """
    fields = stat_of(pid)
    return int(fields[19]) if fields and fields[0] not in "ZX" else None


def stat_of(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the third on; the second, a name, may be anything.

    Empty when the process is gone.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


@cache
def boot_name() -> str:
    """Return eight hex digits for this boot of this machine, and this namespace of processes."""
    facts: list[str] = []
    for path in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        with contextlib.suppress(OSError):
            facts.append(Path(path).read_text())
    with contextlib.suppress(OSError):
        facts.append(str(Path("/proc/self/ns/pid").readlink()))
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=4).hexdigest()
