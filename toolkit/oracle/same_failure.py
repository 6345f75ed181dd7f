"""The oracle of a reduction: does a candidate still fail as the case did, and for that reason?

Every reduction of a compile asks through here, so that `minify` and `diagnose` ask the same.
"""

from dataclasses import dataclass, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.remembering import Remembering


@dataclass(frozen=True, slots=True)
class SameFailure:
    """The oracle that says whether a candidate shows the failure of `case`.

    1. A candidate must show the signature of `case`. An exception is the same only when it comes
       from the same pass, which takes an observed compile to know.
    2. With a `cause`, the candidate must also pass once that is left out: a reduction may otherwise
       slip from the failure that was proved to another one with the same signature.

    Attributes:
        case: Has the signature to look for.
        executor: Who compiles and runs.
        cause: What must be to blame.
        base: What is left out of every question, with which the case fails as well; with no kernels
            to generate a question costs little.
    """

    case: Case
    executor: Executor
    cause: Veto | None = None
    base: Veto | None = None

    def __call__(self, candidate: Case) -> Judgement:
        """Judge a candidate."""
        expected = self.case.signature
        judgement = self.executor.ask(candidate, expected, self._watched, is_candidate=True)
        if self.cause is None or judgement.verdict is not Verdict.REPRODUCES:
            return judgement
        without = self.executor.ask(candidate, expected, self.cause)
        return _blamed(judgement, without)

    def recall(self, candidate: Case) -> Judgement | None:
        """Return what the executor remembers of a candidate; None where it would have to ask."""
        if not isinstance(self.executor, Remembering):
            return None
        expected = self.case.signature
        judgement = self.executor.recall(candidate, expected, self._watched, is_candidate=True)
        if judgement is None or self.cause is None:
            return judgement
        if judgement.verdict is not Verdict.REPRODUCES:
            return judgement
        without = self.executor.recall(candidate, expected, self.cause)
        return without and _blamed(judgement, without)

    @property
    def _watched(self) -> Veto | None:
        expected = self.case.signature
        is_error = expected is not None and expected.exception is not None
        return Veto() if is_error and self.base is None else self.base


def _blamed(judgement: Judgement, without: Judgement) -> Judgement:
    """Return the judgement; another failure where leaving out the cause changes nothing."""
    if without.verdict is Verdict.PASSES:
        return judgement
    return replace(judgement, verdict=Verdict.DIFFERENT)
