"""Several executors of one kind, each of which answers one question at a time.

It does not decide what is asked at the same time (`ctk.toolkit.oracle.speculation`).
"""

import os
import time
from collections.abc import Sequence

from ctk.compiler.errors import CtkError
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, Unavailable
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.closeable import Closeable

ASKED_AT_MOST = 3
"""How many may be lost with one question: more is no accident."""

READY_SECONDS = 120.0
"""Longest that a question waits until somebody can answer it."""

_LOOK_SECONDS = 0.5


def lost(last: Unavailable) -> CtkError:
    """Return what is raised for a question that nobody survives."""
    return CtkError(f"a question was lost {ASKED_AT_MOST} times, and is given up; {last}")


def nobody_ready() -> CtkError:
    """Return what is raised where nobody can be asked."""
    return CtkError(
        f"no machine of the cluster has had room for a question for {READY_SECONDS:g} seconds\n"
        "next: see what it is busy with (ray status), or ask for less: --jobs, --resources"
    )


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool(Executor):
    """Asks the first of its members; whoever asks several at once asks them directly.

    Args:
        members: Who answers; one at least, all of them isolating.
        shared: What they stand on; closed after them.
    """

    isolates = True

    def __init__(self, members: Sequence[Executor], shared: Closeable | None = None) -> None:
        self._members, self._shared = tuple(members), shared
        self.limit_seconds, self.memory = members[0].limit_seconds, members[0].memory

    @property
    def members(self) -> tuple[Executor, ...]:
        return self._members

    def judge(self, question: Question) -> Judgement:
        """Judge a case, with the first member that is ready.

        Raises:
            CtkError: Each that was asked has ended, or nobody becomes ready.
        """
        losses: list[Unavailable] = []
        while len(losses) < ASKED_AT_MOST:
            member = self._ready()
            member.want()  # the end of questions ahead has told it the opposite
            try:
                return member.judge(question)
            except Unavailable as error:
                losses.append(error)
        raise lost(losses[-1]) from losses[-1]

    def _ready(self) -> Executor:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for member in self._members:
                if member.is_ready(_LOOK_SECONDS):
                    return member
        raise nobody_ready()

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, with the first member."""
        return self._members[0].ask_program(question)

    def close(self) -> None:
        """End all members, and then what they stand on."""
        for member in self._members:
            member.close()
        if self._shared is not None:
            self._shared.close()
