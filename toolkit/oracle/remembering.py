"""Ask an oracle once: what it answered is in the journal, and is not asked again."""

import hashlib
import json
from dataclasses import replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.formats.schema import encode
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.journal import Journal


class Remembering(Executor):
    """Asks another executor what the journal does not know, and notes each answer at once.

    Args:
        executor: Who answers; closing it is left to who started it.
        journal: Where the answers are.
        digests: Of the tensors of cases.
        limits: Of time and memory of a question. That one of them was passed says nothing about
            another limit; nor does the shorter time of a candidate about other questions.
    """

    def __init__(
        self,
        executor: Executor,
        journal: Journal,
        digests: Digests,
        limits: tuple[float | None, int | None] = (None, None),
    ) -> None:
        self.isolates = executor.isolates
        self._executor, self._journal, self._digests = executor, journal, digests
        self._limits = limits

    @property
    def members(self) -> "tuple[Remembering, ...]":
        if len(self._executor.members) == 1:
            return (self,)
        shared = (self._journal, self._digests, self._limits)
        return tuple(Remembering(member, *shared) for member in self._executor.members)

    def is_ready(self, seconds: float) -> bool:
        """Wait up to so long until the other executor can answer."""
        return self._executor.is_ready(seconds)

    def want(self) -> None:
        """From now on answers are wanted."""
        self._executor.want()

    def unwant(self) -> None:
        """Pass on that the answer is not wanted any more."""
        self._executor.unwant()

    def ask(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement:
        """Return the remembered answer, or ask."""
        key = question_key(fingerprint(case, self._digests), expected, veto)
        known = self._known(key, is_candidate)
        if known is not None:
            return known
        judgement = self._executor.ask(case, expected, veto, is_candidate=is_candidate)
        is_cut_off = judgement.signature is not None and judgement.signature.is_cut_off
        self._journal.note(key + self._limited(is_candidate) * is_cut_off, judgement)
        return judgement

    def recall(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        is_candidate: bool = False,
    ) -> Judgement | None:
        """Return the remembered answer, if there is one."""
        key = question_key(fingerprint(case, self._digests), expected, veto)
        return self._known(key, is_candidate)

    def _known(self, key: str, is_candidate: bool) -> Judgement | None:
        known = self._journal.recall(Judgement, key)
        return known or self._journal.recall(Judgement, key + self._limited(is_candidate))

    def _limited(self, is_candidate: bool) -> str:
        seconds, nbytes = self._limits
        return f"/{seconds}/{nbytes}{'/candidate' * is_candidate}"

    def close(self) -> None:
        """Leave the other executor to who started it."""


def question_key(case: str, expected: Signature | None, veto: Veto | None) -> str:
    """Return what names a question: what is compiled, the failure looked for, what is left out.

    Of the failure only what `Signature.matches` reads.
    """
    wanted = encode(replace(expected, output=None, message="")) if expected else None
    left_out = None
    if veto is not None:
        sets = (veto.passes, veto.rewrites, veto.kernels)
        left_out = [*(sorted(each) for each in sets), veto.fuel]
    text = json.dumps([case, wanted, left_out], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
