"""How long processes wait for a core: on a busy machine a program is slow without being stuck.

The system counts for each thread how long it was ready to run and did not (`schedstat` in `/proc`;
Linux). A thread that sleeps waits for something else, and is not counted; without `/proc` nobody
waits.

    a thread that computes, alone on its core             0.00 s of a second
    the same beside three others on that core             0.75 s
    a deadlock                                            0.00 s
"""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from ctk.toolkit.processes.tree import PROC

_NANOSECONDS = 1e-9


@dataclass(slots=True)
class Waits:
    """What the threads of some processes have waited until the last look, by thread."""

    known: dict[int, int] = field(default_factory=dict[int, int])

    def since(self, pids: Iterable[int]) -> float:
        """Return the seconds that the thread that waited longest has waited since the last look."""
        before, self.known = self.known, dict(_waited(pids))
        more = (now - before[thread] for thread, now in self.known.items() if thread in before)
        return max(more, default=0) * _NANOSECONDS


def _waited(pids: Iterable[int]) -> Iterable[tuple[int, int]]:
    """Yield each thread with the nanoseconds that it was ready to run and did not."""
    for pid in pids:
        tasks = PROC / str(pid) / "task"
        with contextlib.suppress(OSError):
            for name in os.listdir(tasks):  # noqa: PTH208  a Path each is slow, and this is polled
                with contextlib.suppress(OSError, ValueError, IndexError):
                    yield int(name), int((tasks / name / "schedstat").read_text().split()[1])
