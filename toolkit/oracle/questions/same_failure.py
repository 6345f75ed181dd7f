"""The judge of every reduction of a compile: does a candidate fail as the given case did?"""

import re
from dataclasses import dataclass, replace

from ctk.compiler.options.choices import SameRule
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.question import Oracle, Question


@dataclass(frozen=True, slots=True)
class SameFailure:
    """The layer that decides whether a candidate shows the failure of `case`.

    1. A candidate must show the signature of `case`. An exception is the same only if the same pass
       raises it, which only an observed compile shows.
    2. With a `cause`, the candidate must also pass without it: otherwise a reduction may slip from
       the proved failure to another one with the same signature.
    3. With a `rule`, failures must agree in more (`strict`) or in less (`type`, `any`) than in
       their signatures. For less, the layer below looks for any failure, and the comparison is made
       here, so that its answers hold for both rules.

    Attributes:
        cause: The veto without which a candidate must pass.
        base: Left out of every compile, as the case fails without it as well; a question without
            kernels to generate is cheap.
        rule: The rule by which two failures are the same; None: their signatures.
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
        if self.inner.ask(without, known_only=known_only).is_no_failure:
            return judgement
        return replace(judgement, verdict=Verdict.DIFFERENT)

    @property
    def _expected(self) -> Signature | None:
        """The failure that the layer below looks for; None: any, and the rule decides here.

        Only where the failure is a hang does the layer below wait for one.
        """
        wanted = self.case.signature
        if wanted is None or wanted.is_cut_off:
            return wanted
        is_error_type = self.rule == "type" and wanted.exception is not None
        return None if self.rule == "any" or is_error_type else wanted

    def _apply_rule(self, judgement: Judgement) -> Judgement:
        wanted, seen = self.case.signature, judgement.signature
        if self.rule is None or wanted is None or seen is None or not judgement.fails:
            return judgement
        if judgement.verdict is Verdict.DIFFERENT and seen.ends_process:
            return judgement  # eager, which may die of it as well, has not run
        is_same = is_alike(wanted, seen, self.rule)
        return replace(judgement, verdict=Verdict.REPRODUCES if is_same else Verdict.DIFFERENT)

    @property
    def _watched(self) -> Veto | None:
        expected = self.case.signature
        is_error = expected is not None and expected.exception is not None
        return Veto() if is_error and self.base is None else self.base


def is_other(given: Case, smallest: Case) -> bool:
    """Return whether a reduction with a wide rule has ended at another failure than it began with.

    The failure has another message, kind, type or place.
    """
    before, after = given.signature, smallest.signature
    return before is not None and after is not None and not is_alike(before, after, "strict")


def is_alike(wanted: Signature, seen: Signature, rule: SameRule) -> bool:
    """Return whether two failures are the same under a rule.

    Cases: 1. `any`; 2. `type`: kind, exception type and signal; 3. `strict`: also the raising place
    and the normalized message of the exception. A measured failure has no message.
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


_NAME_NUMBER = re.compile(r"(?<=[A-Za-z])_\d+\b")
_NUMBER = re.compile(
    r"\b0x[0-9a-fA-F]+\b"  # an address
    r"|\b[su]\d+\b"  # a symbolic size
    r"|\b\d+(x\d+)+\b"  # a shape: 2x3
    r"|(?<![\w.])[-+]?\d+(\.\d*)?([eE][-+]?\d+)?(?!\w)"
)
_SEVERAL = re.compile(r"#(\s*[,x]\s*#)+")


def normalize_message(message: str) -> str:
    """Return a message without the parts that change from candidate to candidate.

    Numbers, addresses and lists of them become `#`. The number at the end of a node's name is
    dropped with its underscore: `mul_5` and `mul` may be the same node of two candidates.

    >>> normalize_message("mul_5: index 17 of [2, 3] at 0x7f31aa, float32")
    'mul: index # of [#] at #, float32'
    """
    text = _NUMBER.sub("#", _NAME_NUMBER.sub("", message))
    return " ".join(_SEVERAL.sub("#", text).split())
