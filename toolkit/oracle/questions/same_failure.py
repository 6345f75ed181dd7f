"""The oracle of a reduction: does a candidate still fail as the case did, and for that reason?

Every reduction of a compile asks through here, so that `minify` and `diagnose` ask the same.
"""

from dataclasses import dataclass, replace

from ctk.compiler.options.choices import SameRule
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.oracle.questions.message_normalization import normalize_message


@dataclass(frozen=True, slots=True)
class SameFailure:
    """The oracle that says whether a candidate shows the failure of `case`.

    1. A candidate must show the signature of `case`. An exception is the same only when it comes
       from the same pass, which takes an observed compile to know.
    2. With a `cause`, the candidate must also pass once that is left out: a reduction may otherwise
       slip from the failure that was proved to another one with the same signature.
    3. With a `rule`, a failure must be alike in more (`strict`) or in less (`type`, `any`) than in
       its signature. For less, who answers is asked for any failure, and what it saw is compared
       here: so its answers can be remembered for either rule.

    Attributes:
        case: Has the signature to look for.
        inner: Compiles and runs: an executor, or its journal.
        cause: What must be to blame.
        base: What is left out of every question, with which the case fails as well; with no kernels
            to generate a question costs little.
        rule: What makes two failures the same, if not their signatures.
    """

    case: Case
    inner: Oracle
    cause: Veto | None = None
    base: Veto | None = None
    rule: SameRule | None = None

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Judge a candidate; the question about the cause has no deadline of its own."""
        seen = replace(question, expected=self._expected, veto=self._watched)
        judgement = self._apply_rule(self.inner.ask(seen, known_only=known_only))
        if self.cause is None or judgement.verdict is not Verdict.REPRODUCES:
            return judgement
        without = replace(seen, veto=self.cause, deadline_seconds=None)
        if self.inner.ask(without, known_only=known_only).verdict is Verdict.PASSES:
            return judgement
        return replace(judgement, verdict=Verdict.DIFFERENT)

    @property
    def _expected(self) -> Signature | None:
        """What who answers looks for; None for any failure, which is judged here then.

        A candidate that does not end is waited for only where that is looked for.
        """
        wanted = self.case.signature
        if wanted is None or wanted.is_cut_off:
            return wanted
        is_error_type = self.rule == "type" and wanted.exception is not None
        return None if self.rule == "any" or is_error_type else wanted

    def _apply_rule(self, judgement: Judgement) -> Judgement:
        """Return the answer as the rule reads it."""
        wanted, seen = self.case.signature, judgement.signature
        if self.rule is None or wanted is None or seen is None or not judgement.fails:
            return judgement
        if judgement.verdict is Verdict.DIFFERENT and seen.ends_process:
            return judgement  # nobody has asked whether eager dies of it as well
        is_same = is_alike(wanted, seen, self.rule)
        return replace(judgement, verdict=Verdict.REPRODUCES if is_same else Verdict.DIFFERENT)

    @property
    def _watched(self) -> Veto | None:
        expected = self.case.signature
        is_error = expected is not None and expected.exception is not None
        return Veto() if is_error and self.base is None else self.base


def is_other(given: Case, smallest: Case) -> bool:
    """Return whether a reduction with a wide rule has ended at another failure than it began with.

    What it shows has other words, or another kind, type or place.
    """
    before, after = given.signature, smallest.signature
    return before is not None and after is not None and not is_alike(before, after, "strict")


def is_alike(wanted: Signature, seen: Signature, rule: SameRule) -> bool:
    """Return whether two failures are the same under a rule.

    Cases: 1. `any`; 2. `type`: kind, exception type and signal; 3. `strict`: the raising place and
    the words of the exception too, numbers and addresses apart. What was measured has no words.
    """
    if rule == "any":
        return True
    if rule == "type":
        mine = (wanted.kind, wanted.exception, wanted.signal)
        return mine == (seen.kind, seen.exception, seen.signal)
    has_words = wanted.exception is not None
    return wanted.matches(seen) and (
        not has_words or normalize_message(wanted.message) == normalize_message(seen.message)
    )
