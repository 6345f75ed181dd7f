"""Which processes descend from another, which carry our mark, and how to end them all.

A process that left its group (a double-forked daemon, a pool that leads its own) is still found:
by its parents, as long as an ancestor adopts orphans (groups.py), and by a variable in its
environment afterwards. They are read from `/proc`: without one (macOS) nothing is found.
"""

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ctk.compiler.usercode.process_name import stat_of

PROC = Path("/proc")

_LOOKS = 10
"""How often a tree that changes all the time is looked at again."""

_END_SECONDS = 5.0
"""How long killed processes may take to be gone."""


def process_ids() -> Iterator[int]:
    """Yield every process that this machine shows us."""
    with contextlib.suppress(OSError):
        yield from (int(name) for name in os.listdir(PROC) if name.isdigit())  # noqa: PTH208  a Path each is slow


def is_alive(pid: int) -> bool:
    """Return whether some process has this id, anybody's; without `/proc` as well."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def descendants(root: int, *, spare: Collection[int] = ()) -> list[int]:
    """Return the living processes below one, parents before their children.

    A process that forks and ends while we look hides its child from that look: two must agree.

    Args:
        root: Their ancestor.
        spare: Left out, with all below them.
    """
    found = _look_below(root, spare)
    for _ in range(_LOOKS):
        before, found = found, _look_below(root, spare)
        if found == before:
            break
    return found


def _look_below(root: int, spare: Collection[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in process_ids():
        fields = stat_of(pid)
        if fields and fields[0] not in "ZX" and pid not in spare:
            children.setdefault(int(fields[1]), []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:  # grows while it is read
        found += children.get(pid, ())
    return found


def end_descendants(root: int, *, spare: Collection[int] = ()) -> list[int]:
    """Kill what descends from a process, itself excepted; return what was found.

    A killed parent's children may be born meanwhile: it looks again until nothing is left.

    Args:
        root: An ancestor that adopts orphans, or is one that has left none.
        spare: Processes that live on, with all below them.
    """
    killed: list[int] = []
    deadline = time.monotonic() + _END_SECONDS
    while found := descendants(root, spare=spare):
        killed += end_processes(found)
        if time.monotonic() > deadline:
            break
        time.sleep(0.005)
    return killed


def end_processes(pids: Collection[int]) -> Collection[int]:
    """Send SIGKILL to some processes; those that are gone are fine."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return pids


def carriers(variable: str) -> list[int]:
    """Return the living processes of this user, not this one, that were started with `NAME=VALUE`.

    Args:
        variable: Looked for in the environment that a process was started with.
    """
    wanted = variable.encode()
    found: list[int] = []
    for pid in process_ids():
        with contextlib.suppress(OSError):
            entries = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
            if pid != os.getpid() and wanted in entries:
                found.append(pid)
    return found
