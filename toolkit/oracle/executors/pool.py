"""Several executors of one kind, each of which answers one question at a time.

What it does not do: decide what is asked at the same time (`ctk.toolkit.oracle.ahead`).
"""

import os
from collections.abc import Sequence

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.end_to_end.question import ProgramQuestion
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.processes.closing import Closing


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

    def __init__(self, members: Sequence[Executor], shared: Closing | None = None) -> None:
        self._members, self._shared = tuple(members), shared

    @property
    def members(self) -> tuple[Executor, ...]:
        return self._members

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement:
        """Judge a case, with the first member."""
        return self._members[0].ask(case, expected, veto, is_candidate=is_candidate)

    def ask_program(self, question: ProgramQuestion) -> EndToEnd:
        """Compare both sides of a program, with the first member."""
        return self._members[0].ask_program(question)

    def close(self) -> None:
        """End all members, and then what they stand on."""
        for member in self._members:
            member.close()
        if self._shared is not None:
            self._shared.close()
