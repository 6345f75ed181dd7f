"""The memory that processes hold, and its default limit.

Held memory is anonymous and shared memory, which only its process can give back: no files and no
reserved addresses (CUDA reserves terabytes, which rules out `ulimit -v`). It is read from `/proc`;
without `/proc` (macOS) it is 0 and has no limit.
"""

import contextlib
import math
import re
from collections.abc import Iterable
from pathlib import Path

SHARE = 0.8
"""Share of the free memory of this machine or control group that children may hold."""

_LEAST_NBYTES = 1 << 30
_HELD = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUPS = Path("/sys/fs/cgroup")


def held_nbytes(pids: Iterable[int]) -> int:
    """Return the bytes that some processes hold together; a shared page counts for each of them."""
    statuses = (_read(Path("/proc") / str(pid) / "status") for pid in pids)
    return sum(int(kib) << 10 for status in statuses for kib in _HELD.findall(status))


def default_limit_nbytes() -> int | None:
    """Return the default limit for the processes of one question, in bytes; None: no limit."""
    free = free_nbytes()
    return None if free is None else max(_LEAST_NBYTES, int(SHARE * min([free, *_group_limits()])))


def free_nbytes() -> int | None:
    """Return the free memory of this machine in bytes; None if the system does not report it."""
    matched = _AVAILABLE.search(_read(Path("/proc/meminfo")))
    return None if matched is None else int(matched[1]) << 10


def _group_limits() -> list[int]:
    """Return the limits of this process's control groups (a container, a CI job)."""
    limits: list[int] = []
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, name = line.split(":", 2)
        root = _CGROUPS / "memory" if "memory" in controllers.split(",") else _CGROUPS
        group = root / name.strip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                for file in ("memory.max", "memory.limit_in_bytes"):
                    with contextlib.suppress(ValueError):
                        limits.append(int(_read(folder / file)))
    return limits


def describe_excess(nbytes: int) -> str:
    """Return the message for a question that holds more than `nbytes`."""
    return f"more than {format_size(nbytes)} (--memory)"


def name_limit(nbytes: int | None, default: str | None = None) -> str:
    """Return the name of a limit, for the key of answers that depend on it.

    The default limit depends on the free memory, which varies: its name is the magnitude, so that
    an operation resumed on the same machine reuses its answers.
    """
    if nbytes is not None:
        return str(nbytes)
    free = default_limit_nbytes() if default is None else None
    return f"default {default or (free and round(math.log2(free)))}"


def format_size(nbytes: int) -> str:
    """Return a size as `--memory` takes it: `1.5G`, `300M`."""
    unit, name = (1 << 30, "G") if nbytes >= 1 << 30 else (1 << 20, "M")
    return f"{nbytes / unit:.1f}".removesuffix(".0") + name


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
