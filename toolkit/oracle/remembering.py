"""Ask an oracle once: what it answered is in the journal, and is not asked again."""

import hashlib
import json
from dataclasses import replace
from functools import partial

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.journal import Journal
from ctk.toolkit.oracle.memo import Memo


class Remembering(Executor):
    """Asks another executor what the journal does not know, and notes each answer at once.

    Args:
        executor: Who answers; closing it is left to who started it. Its limits are those of the
            answers.
        journal: Where the answers are.
        digests: Of the tensors of cases.
    """

    def __init__(self, executor: Executor, journal: Journal, digests: Digests) -> None:
        self.isolates = executor.isolates
        self.limit_seconds, self.memory = executor.limit_seconds, executor.memory
        self._executor, self._digests = executor, digests
        self._memo = Memo(journal, executor.limit_seconds, executor.memory)

    @property
    def members(self) -> "tuple[Remembering, ...]":
        if len(self._executor.members) == 1:
            return (self,)
        shared = (self._memo.journal, self._digests)
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
        within: float | None = None,
    ) -> Judgement:
        """Return the remembered answer, or ask."""
        key = question_key(fingerprint(case, self._digests), expected, veto)
        ask = partial(self._executor.ask, case, expected, veto, within=within)
        return self._memo.answered(key, within, ask)

    def recall(
        self,
        case: Case,
        expected: Signature | None = None,
        veto: Veto | None = None,
        *,
        within: float | None = None,
    ) -> Judgement | None:
        """Return the remembered answer, if there is one."""
        key = question_key(fingerprint(case, self._digests), expected, veto)
        return self._memo.recall(key, within)

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
