"""A name for a process that no other process ever has: `boot-pid-start`.

Temporary folders carry it, so that a later run recognizes the leftovers of killed processes. `boot`
identifies the boot of the machine and the process namespace, so that a process id is only looked up
on its own machine; `start` is the start of the process, because ids are reused.
"""

import contextlib
import hashlib
import os
from functools import cache
from pathlib import Path


def process_name() -> str:
    """Return the unique name of this process."""
    pid = os.getpid()
    return f"{boot_name()}-{pid}-{start_time(pid) or 0}"


def start_time(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if it is gone or a zombie."""
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
