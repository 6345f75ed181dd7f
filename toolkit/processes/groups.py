"""Process groups, and the fate of a child whose parent ends.

A child that answers questions leads its own process group: Ctrl-C in the terminal does not reach
it, and killing the group also ends its C++ compiler. On Linux it dies with its parent.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def lead_group(parent: int) -> None:
    """Make this forked process the leader of a new group; on Linux, it dies with `parent`."""
    os.setpgid(0, 0)
    die_with(parent)


def die_with(parent: int) -> None:
    """Have the system kill this forked process when `parent` ends (Linux)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def die_first() -> None:
    """Make this process the first that the system ends for want of memory (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("800")


@contextlib.contextmanager
def die_with_parent() -> Generator[None]:
    """Be killed if the parent ends inside the `with` block, during which no pipe is read."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        yield
    finally:
        _prctl(_PR_SET_PDEATHSIG, 0)


def adopt_orphans() -> None:
    """Make orphaned grandchildren children of this process, which reaps them (Linux)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def kill_group(leader: int) -> None:
    """Kill a process group, if it still exists; its leader has to be waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def end_group(leader: int) -> int:
    """Kill a child's process group, wait for the child and return its exit status.

    A child that was forked just now may not lead its group yet: it is killed by itself as well.
    """
    kill_group(leader)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(leader, signal.SIGKILL)
    return wait_for(leader)


def wait_for(child: int) -> int:
    """Wait for a child and return its exit status; a negative one is the signal that killed it."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def reap_orphans() -> None:
    """Reap every dead child of this process, adopted ones included."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
