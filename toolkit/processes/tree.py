"""Read processes from `/proc`: descendants, carriers of a mark, time spent waiting for a core.

A process that left its group (a double-forked daemon, a pool that leads its own) is found by its
parents as long as an ancestor adopts orphans (groups.py), and by a variable in its environment
afterwards. Without `/proc` (macOS) no process is found, and none waits for a core.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from ctk.compiler.usercode.process_name import stat_of

PROC = Path("/proc")

_LOOKS = 10
"""How often a tree that keeps changing is read again."""

_END_SECONDS = 5.0
"""How long killed processes may take to be gone."""

_NANOSECONDS = 1e-9


def process_ids() -> Iterator[int]:
    """Yield the ids of all visible processes."""
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208  a Path each is slow


def is_alive(pid: int) -> bool:
    """Return whether a process of any user has this id; works without `/proc`."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def find_descendants(root: int, *, spare: Collection[int] = ()) -> list[int]:
    """Return the living processes below one, parents before their children.

    A process that forks and ends during a read hides its child from it: two reads must agree.

    Args:
        spare: Left out, with all below them.
    """
    found = _look_below(root, spare)
    for _ in range(_LOOKS):
        before, found = found, _look_below(root, spare)
        if found == before:
            break
    return found


def _look_below(root: int, spare: Collection[int]) -> list[int]:
    children_of = _listed_children if _lists_children() else partial(dict.get, _all_children())
    found = [pid for pid in children_of(root) or () if pid not in spare]
    for pid in found:  # grows while it is read
        found += [child for child in children_of(pid) or () if child not in spare]
    return found


@cache
def _lists_children() -> bool:
    """Return whether the kernel lists the children of a thread (`CONFIG_PROC_CHILDREN`)."""
    return (PROC / "thread-self" / "children").exists()


def _listed_children(pid: int) -> list[int]:
    """Return the living children of a process: those of each of its threads."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for name in os.listdir(f"{PROC}/{pid}/task"):  # noqa: PTH208  a Path each is slow
            with contextlib.suppress(OSError):
                text = Path(f"{PROC}/{pid}/task/{name}/children").read_text()
                children += map(int, text.split())
    return [child for child in sorted(children) if _parent_of(child)]


def _all_children() -> dict[int, list[int]]:
    """Return the living children of every process: a read of all processes of the machine."""
    children: dict[int, list[int]] = {}
    for pid in process_ids():
        if parent := _parent_of(pid):
            children.setdefault(parent, []).append(pid)
    return children


def _parent_of(pid: int) -> int | None:
    """Return the parent of a living process; None for a zombie, and where there is no process."""
    fields = stat_of(pid)
    return int(fields[1]) if fields and fields[0] not in "ZX" else None


def kill_descendants(root: int, *, spare: Collection[int] = ()) -> list[int]:
    """Kill the descendants of a process, not itself; return their ids.

    A parent may fork before it is killed: the tree is read again until it is empty.

    Args:
        root: An ancestor that adopts orphans, or has none.
    """
    killed: list[int] = []
    deadline = time.monotonic() + _END_SECONDS
    while descendants := find_descendants(root, spare=spare):
        killed += kill_processes(descendants)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return killed


def kill_processes(pids: Collection[int]) -> Collection[int]:
    """Send SIGKILL to some processes, of which some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids


def find_carriers(variable: str) -> list[int]:
    """Return the other living processes of this user that were started with `NAME=VALUE`."""
    wanted = variable.encode()
    carriers: list[int] = []
    for pid in process_ids():
        with contextlib.suppress(OSError):
            entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if pid != os.getpid() and wanted in entries:
                carriers.append(pid)
    return carriers


@dataclass(slots=True)
class CoreWaits:
    """The time that threads of some processes were ready to run and had no core.

    On a busy machine a program is slow without being stuck. The system counts this time for each
    thread (`schedstat`, Linux); a sleeping thread waits for something else, and is not counted:

        a thread that computes, alone on its core             0.00 s of a second
        the same beside three others on that core             0.75 s
        a deadlock                                            0.00 s
    """

    nanoseconds: dict[int, int] = field(default_factory=dict[int, int])

    def since(self, pids: Iterable[int]) -> float:
        """Return the seconds that the longest-waiting thread has waited since the last read."""
        before, self.nanoseconds = self.nanoseconds, dict(_core_waits(pids))
        waits = (
            now - before[thread] for thread, now in self.nanoseconds.items() if thread in before
        )
        return max(waits, default=0) * _NANOSECONDS


def _core_waits(pids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield each thread of some processes with the nanoseconds that it waited for a core."""
    for pid in pids:
        tasks = PROC / str(pid) / "task"
        with contextlib.suppress(OSError):
            for name in os.listdir(tasks):  # noqa: PTH208  a Path each is slow, and this is polled
                with contextlib.suppress(OSError, ValueError, IndexError):
                    yield int(name), int((tasks / name / "schedstat").read_text().split()[1])
