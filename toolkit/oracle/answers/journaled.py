"""The memory of the stack: an answer is on disk at once, and its question is not asked again.

An answer holds for its question in every operation. An answer that a limit has cut off holds for
no longer limit, so it is kept under a key of its own: with the time that it had, which any shorter
deadline would have cut off as well, or under the name of the memory limit that was too small.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import encode
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.journal import Journal
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.question import NotKnown, Oracle, Question


@dataclass(frozen=True, slots=True)
class Memo:
    """The answers in a journal, by question and limit.

    Attributes:
        limit_seconds: Limit of a question without a deadline; None: unlimited.
        memory: Names the memory limit of a question.
    """

    journal: Journal
    limit_seconds: float | None = None
    memory: str = ""

    def recall(self, key: str, deadline_seconds: float | None = None) -> Judgement | None:
        """Return the answer that holds for these limits; None without one.

        A question that a short deadline cut off and a longer one answered has both answers: a
        resumed search takes the same path as the killed one.

        Args:
            deadline_seconds: None: the whole limit.
        """
        limit = self.limit_seconds if deadline_seconds is None else deadline_seconds
        cut_off = self.journal.recall(Judgement, _time_key(key))
        if cut_off is not None and cut_off.holds(limit):
            return cut_off
        answer = self.journal.recall(Judgement, key)
        return answer or self.journal.recall(Judgement, self._memory_key(key))

    def note(self, key: str, answer: Judgement) -> None:
        """Write an answer; a cut-off answer never replaces one with a longer limit."""
        if answer.is_out_of_time:
            longest = self.journal.recall(Judgement, _time_key(key))
            if longest is None or not longest.holds(answer.seconds):
                self.journal.note(_time_key(key), answer)
        elif answer.signature is not None and answer.signature.is_cut_off:
            self.journal.note(self._memory_key(key), answer)
        else:
            self.journal.note(key, answer)

    def _memory_key(self, key: str) -> str:
        return f"{key}/memory {self.memory}"


def _time_key(key: str) -> str:
    return f"{key}/time"


def _ignore(answer: Judgement) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Journaled:
    """The layer that remembers: it asks the layer below only for answers that the memo lacks.

    Attributes:
        identity: Names the oracle below: a command, a function, a rule. Empty over an executor,
            whose questions say everything themselves.
        on_answer: Called with each answer, new or remembered. During speculation it is called when
            the answer arrives.
    """

    inner: Oracle
    memo: Memo
    digests: Digests
    identity: str = ""
    on_answer: Callable[[Judgement], object] = _ignore
    isolates: bool = False

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Return the remembered answer, or ask the layer below and note its answer."""
        key = self.key_of(question)
        answer = self.memo.recall(key, question.deadline_seconds)
        if answer is None:
            if known_only:
                raise NotKnown
            answer = self.inner.ask(question)
            self.memo.note(key, answer)
        self.on_answer(answer)
        return answer

    def key_of(self, question: Question) -> str:
        """Return the name of a question in the journal; each run of it has its own."""
        case = fingerprint(question.case, self.digests)
        if not self.identity:
            return question_key(case, question.expected, question.veto)
        run = f"/run {question.run}" if question.run else ""
        return f"{self.identity}/{case}{run}"


def journal_executor(executor: Executor, journal: Journal, digests: Digests) -> Journaled:
    """Return the oracle that remembers the answers of an executor."""
    memo = Memo(journal, executor.limit_seconds, executor.memory)
    return Journaled(executor, memo, digests, isolates=executor.isolates)


def question_key(case: str, expected: Signature | None, veto: Veto | None) -> str:
    """Return the name of a question: the case, the failure to look for, and the veto.

    Of the failure only the fields that `Signature.matches` reads count.
    """
    wanted = encode(replace(expected, output=None, message="")) if expected else None
    left_out = None
    if veto is not None:
        sets = (veto.passes, veto.rewrites, veto.kernels)
        left_out = [*(sorted(each) for each in sets), veto.fuel]
    text = json.dumps([case, wanted, left_out], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
