"""Several executors of one kind, each of which answers one question at a time."""

import os
import time
from collections.abc import Sequence

from ctk.compiler.errors import ChildError, CtkError
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor, Unavailable
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.processes.closeable import Closeable

ASKED_AT_MOST = 3
"""How many executors may be lost with one question: more are not lost by chance."""

READY_SECONDS = 120.0
"""Longest time that a question waits for an executor."""

_LOOK_SECONDS = 0.5


def make_lost_error(last: Unavailable) -> CtkError:
    """Return the error for a question with which each executor was lost."""
    return ChildError(f"a question was lost {ASKED_AT_MOST} times, and is given up; {last}")


def make_not_ready_error() -> CtkError:
    """Return the error for a pool in which no executor becomes ready."""
    return ChildError(
        f"no machine of the cluster has had room for a question for {READY_SECONDS:g} seconds\n"
        "next: check its load (ray status), or request less: --jobs, --resources"
    )


def count_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool(Executor):
    """Asks its first ready member; callers with several questions ask the members directly.

    Args:
        shared: The zygote or cluster that they share; closed after them.
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
            CtkError: Each asked member has ended, or none becomes ready.
        """
        losses: list[Unavailable] = []
        while len(losses) < ASKED_AT_MOST:
            member = self._await_member()
            member.resume()  # the end of a speculation may have cancelled it
            try:
                return member.judge(question)
            except Unavailable as error:
                losses.append(error)
        raise make_lost_error(losses[-1]) from losses[-1]

    def _await_member(self) -> Executor:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            for member in self._members:
                if member.is_ready(_LOOK_SECONDS):
                    return member
        raise make_not_ready_error()

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, with the first member."""
        return self._members[0].ask_program(question)

    def close(self) -> None:
        """End all members, and then the process or cluster that they share."""
        for member in self._members:
            member.close()
        if self._shared is not None:
            self._shared.close()
