"""Ask any oracle once: what it answered is in the journal, and is not asked again.

For oracles that are no executor's question (`remembering.py` is for those): a command, a function,
several runs that make one answer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.memo import Memo


@dataclass(frozen=True, slots=True)
class Noted:
    """An oracle whose answers are remembered.

    Attributes:
        ask: Answers, within so many seconds.
        memo: Its answers.
        digests: Of the tensors of cases.
        identity: What names the question; other questions have other answers.
        told: Told each answer, asked or remembered, when the search gets it (one that asks ahead
            is told when it is there).
    """

    ask: Callable[[Case, float | None], Judgement]
    memo: Memo
    digests: Digests
    identity: str
    told: Callable[[Judgement], object] = lambda judgement: None

    def __call__(self, case: Case, within: float | None = None) -> Judgement:
        """Return the remembered answer, or ask."""
        answer = self.memo.answered(self._key(case), within, partial(self.ask, case, within))
        self.told(answer)
        return answer

    def recall(self, case: Case, within: float | None = None) -> Judgement | None:
        """Return the remembered answer, if there is one."""
        known = self.memo.recall(self._key(case), within)
        if known is not None:
            self.told(known)
        return known

    def _key(self, case: Case) -> str:
        return f"{self.identity}/{fingerprint(case, self.digests)}"
