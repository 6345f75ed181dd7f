"""Run after run of one question: a case that fails by chance is asked about more than once.

Each run is in the journal by its number, so that a process that is killed between two of them
loses none, and nobody rolls the dice again when it is gone on with. Who asks a question for the
first time uses `Noted` or `Remembering`; whoever wants to know more uses this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.memo import Memo


@dataclass(frozen=True, slots=True)
class EachRun:
    """A question that may be asked again; each run of it has its own answer.

    Attributes:
        ask: Asks, within so many seconds, and remembers nothing.
        memo: The answers.
        digests: Of the tensors of cases.
        identity: What names the question.
    """

    ask: Callable[[Case, float | None], Judgement]
    memo: Memo
    digests: Digests
    identity: str

    def __call__(self, case: Case, number: int, within: float | None = None) -> Judgement:
        """Return the answer of a run, which is asked only if it is not remembered."""
        key = f"{self.identity}/{fingerprint(case, self.digests)}/run {number}"
        return self.memo.answered(key, within, partial(self.ask, case, within))

    def until_failing(self, case: Case, most: int) -> list[Judgement]:
        """Return the runs of a case that has passed, up to the first that does not pass."""
        answers: list[Judgement] = []
        while len(answers) < most:
            answers.append(self(case, len(answers) + 1))
            if answers[-1].verdict not in (Verdict.PASSES, Verdict.FLAKY):
                break
        return answers
