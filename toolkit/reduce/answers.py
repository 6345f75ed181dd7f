"""The answers of one search: each question is asked once, through the top of the oracle stack."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.deadlines import Deadlines
from ctk.toolkit.oracle.question import Oracle, ParallelOracle, Question, look_up
from ctk.toolkit.reduce.progress import Ledger

OnAnswer = Callable[[Case, Judgement], object]


class SearchAborted(Exception):
    """The oracle or a callback raised `error`, so the search cannot continue."""

    def __init__(self, who: str, error: Exception) -> None:
        super().__init__(f"{who} raised {error_line(error)}")
        self.error = error


@contextmanager
def aborting(who: str) -> Generator[None]:
    """Raise `SearchAborted` from an exception of the oracle or of a callback."""
    try:
        yield
    except Exception as error:
        raise SearchAborted(who, error) from error


@dataclass(slots=True)
class Answers:
    """Asks the oracle; an answer of an earlier, killed run is looked up and costs no budget.

    Attributes:
        on_answer: Called with each answer of the oracle, new or remembered.
        judgements: The answers so far, by fingerprint.
        is_deciding: Whether candidates that a short limit has cut off are asked about with the
            whole limit.
    """

    oracle: Oracle
    ledger: Ledger
    digests: Digests = field(default_factory=Digests)
    on_answer: OnAnswer | None = None
    judgements: dict[str, Judgement] = field(default_factory=dict[str, Judgement])
    is_deciding: bool = False
    ahead: int = 0

    @property
    def jobs(self) -> int:
        """Number of questions at the same time."""
        return self.oracle.jobs if isinstance(self.oracle, ParallelOracle) else 1

    def key_of(self, case: Case) -> str:
        """Return the fingerprint of a case."""
        return fingerprint(case, self.digests)

    def ask(self, case: Case) -> tuple[Judgement, bool]:
        """Return the answer, and whether the oracle was asked for it."""
        key, question = self.key_of(case), Question(case)
        answer = self.judgements.get(key)
        if answer is not None:
            if not (self.is_deciding and self.is_open(answer)):
                self.ledger.count_cached()
                return answer, False
            self.ledger.cached += 1
            question = Question(case, deadline_seconds=self._whole_seconds)
        remembered = self._look_up(question)
        answer = self._ask(question) if remembered is None else remembered
        self.judgements[key] = answer
        return answer, remembered is None

    def is_open(self, answer: Judgement) -> bool:
        """Return whether a short limit has cut an answer off."""
        return isinstance(self.oracle, Deadlines) and self.oracle.limits.is_open(answer)

    def anticipate(self, candidate: Case, following: Iterable[Case]) -> None:
        """Announce the next question and its likely successors, as many as the jobs."""
        assert isinstance(self.oracle, ParallelOracle)
        wanted: dict[str, Case] = {}
        for case in chain([candidate], following):
            key = self.key_of(case)
            if key not in self.judgements:
                wanted.setdefault(key, case)
            if len(wanted) == self.jobs:
                break
        self.ahead = max(len(wanted) - 1, 0)
        with aborting("the oracle"):
            self.oracle.anticipate([Question(case) for case in wanted.values()])

    @property
    def _whole_seconds(self) -> float | None:
        oracle = self.oracle
        return oracle.limits.whole_seconds if isinstance(oracle, Deadlines) else None

    def _look_up(self, question: Question) -> Judgement | None:
        with aborting("the journal"):
            answer = look_up(self.oracle, question)
            if answer is not None and self.on_answer:
                self.on_answer(question.case, answer)
        if answer is not None:
            self.ledger.count_remembered()
        return answer

    def _ask(self, question: Question) -> Judgement:
        self.ledger.charge()
        with aborting("the oracle"):
            answer = self.oracle.ask(question)
            if self.on_answer:
                self.on_answer(question.case, answer)
        return answer
