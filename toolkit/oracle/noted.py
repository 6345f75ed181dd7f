"""Ask any oracle once: what it answered is in the journal, and is not asked again.

For oracles that are no executor's question (`remembering.py` is for those): a command, a function,
several runs that make one answer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.journal import Journal


@dataclass(frozen=True, slots=True)
class Noted:
    """An oracle whose answers are remembered.

    Attributes:
        ask: Answers.
        journal: Where the answers are.
        digests: Of the tensors of cases.
        identity: What names the question; other questions have other answers.
        limit: Of the seconds of a run: that it was passed says nothing about another limit.
        told: Told each answer, asked or remembered, in the order in which the search gets them.
    """

    ask: Callable[[Case], Judgement]
    journal: Journal
    digests: Digests
    identity: str
    limit: float | None = None
    told: Callable[[Judgement], object] = lambda judgement: None

    def __call__(self, case: Case) -> Judgement:
        """Return the remembered answer, or ask."""
        known = self.recall(case)
        if known is not None:
            return known
        judgement = self.ask(case)
        key = self._key(case)
        is_cut_off = judgement.verdict is Verdict.TIMEOUT
        self.journal.note(f"{key}/{self.limit}" if is_cut_off else key, judgement)
        self.told(judgement)
        return judgement

    def recall(self, case: Case) -> Judgement | None:
        """Return the remembered answer, if there is one."""
        key = self._key(case)
        known = self.journal.recall(Judgement, key)
        known = known or self.journal.recall(Judgement, f"{key}/{self.limit}")
        if known is not None:
            self.told(known)
        return known

    def _key(self, case: Case) -> str:
        return f"{self.identity}/{fingerprint(case, self.digests)}"
