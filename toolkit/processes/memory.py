"""How much memory a process tree holds, and how much it may by default.

Held is what only the tree itself can give back: anonymous and shared memory, no files and no
reserved addresses (CUDA reserves terabytes, so `ulimit -v` would not do). Read from `/proc`;
without one (macOS) nothing is held and nothing is limited.
"""

import contextlib
import math
import re
from collections.abc import Iterable
from pathlib import Path

SHARE = 0.8
"""Part of the memory that this machine or control group has left which children may hold."""

_LEAST_NBYTES = 1 << 30
_HELD = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUPS = Path("/sys/fs/cgroup")


def held_nbytes(pids: Iterable[int]) -> int:
    """Return how many bytes some processes hold together; a shared page counts for each."""
    return sum(_held(_read(Path("/proc") / str(pid) / "status")) for pid in pids)


def _held(status: str) -> int:
    return sum(int(kib) << 10 for kib in _HELD.findall(status))


def default_limit_nbytes() -> int | None:
    """Return how many bytes a question's processes may hold unless the user says so; None: any."""
    free = free_nbytes()
    return None if free is None else max(_LEAST_NBYTES, int(SHARE * min([free, *_group_limits()])))


def free_nbytes() -> int | None:
    """Return how much memory this machine has left; None where the system does not say."""
    found = _AVAILABLE.search(_read(Path("/proc/meminfo")))
    return None if found is None else int(found[1]) << 10


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


def too_much(nbytes: int) -> str:
    """Return what is said of a question that holds more than it may."""
    return f"more than {as_text(nbytes)} (--memory)"


def memory_name(nbytes: int | None, default: str | None = None) -> str:
    """Return what names a limit among the answers that depend on it.

    The default follows what is free, which is another number each time: it is named by its
    magnitude, so that an operation that is resumed on the same machine asks nothing again.

    Args:
        nbytes: What the user says; None for the default.
        default: Names the default; None: that of this machine.
    """
    if nbytes is not None:
        return str(nbytes)
    free = default_limit_nbytes() if default is None else None
    return f"default {default or (free and round(math.log2(free)))}"


def as_text(nbytes: int) -> str:
    """Return a size as `--memory` takes it: `1.5G`, `300M`."""
    unit, name = (1 << 30, "G") if nbytes >= 1 << 30 else (1 << 20, "M")
    return f"{nbytes / unit:.1f}".removesuffix(".0") + name


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
