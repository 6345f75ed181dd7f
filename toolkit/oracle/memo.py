"""Answers that are on disk at once, and are not asked for again: one memo for every oracle.

An answer holds for its question, whoever asks it. One that a limit of ours has ended says nothing
of another limit, and is kept apart: with the time it had, which any shorter limit would have ended
as well, or under the name of the memory that was too little.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.journal import Journal


@dataclass(frozen=True, slots=True)
class Memo:
    """The answers of one operation to the questions of one oracle.

    Attributes:
        journal: Where they are.
        limit_seconds: The whole limit of a question; None: it has none.
        memory: Names what a question may hold.
    """

    journal: Journal
    limit_seconds: float | None = None
    memory: str = ""

    def answered(self, key: str, within: float | None, ask: Callable[[], Judgement]) -> Judgement:
        """Return the remembered answer, or ask.

        Args:
            key: Names the question, without limits.
            within: How long it may take; None: the whole limit.
            ask: Asks with these limits.
        """
        known = self.recall(key, within)
        if known is not None:
            return known
        answer = ask()
        self._note(key, answer)
        return answer

    def recall(self, key: str, within: float | None) -> Judgement | None:
        """Return the remembered answer, if there is one that holds for these limits.

        One that was ended within such a limit, and was there in time with a longer one, is both: a
        search that is resumed takes the way of the one that was ended.
        """
        limit = self.limit_seconds if within is None else within
        cut_off = self.journal.recall(Judgement, _without_time(key))
        if cut_off is not None and cut_off.holds(limit):
            return cut_off
        known = self.journal.recall(Judgement, key)
        return known or self.journal.recall(Judgement, self._without_memory(key))

    def _note(self, key: str, answer: Judgement) -> None:
        if answer.is_out_of_time:
            known = self.journal.recall(Judgement, _without_time(key))
            if known is None or not known.holds(answer.seconds):
                self.journal.note(_without_time(key), answer)
        elif answer.signature is not None and answer.signature.is_cut_off:
            self.journal.note(self._without_memory(key), answer)
        else:
            self.journal.note(key, answer)

    def _without_memory(self, key: str) -> str:
        return f"{key}/memory {self.memory}"


def _without_time(key: str) -> str:
    return f"{key}/time"
