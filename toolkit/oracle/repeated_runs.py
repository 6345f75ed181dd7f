"""Oracles that answer by chance: the failure rate of the given case sets the number of runs.

The given case fails in `failed` of `asked` runs, so with p = failed / asked a case with that rate
passes n times in a row with probability (1 - p) ** n. A candidate is believed to pass after enough
runs to keep that probability below its share of the error probability that is promised for the
whole reduction; one failing run is believed at once:

    p = 0.5, error 1 %, first candidate: share 0.5 %, 8 runs; the tenth: 14; the hundredth: 20

If the first answers agree, each candidate is asked about once, and the smallest case at the end as
often as the given one: if its answers differ, the reduction continues from it with repeated
questions (`session/case_reduction.py`, `minimize.py`).

The shares 1/(k (k + 1)) add up to 1, so the promise holds for any number of candidates. The cost of
an error: a failing candidate counts as passing, and the result is larger than necessary. It never
fails for another reason. A failure rate that falls while the case shrinks is not noticed.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ctk.compiler.errors import DoesNotReproduce
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.question import Oracle, Question

ERROR = 0.01
"""Probability, for a whole reduction, that some candidate is wrongly believed to pass."""

ASKED_FIRST = 3
"""Least number of runs of a failing case, first and last. A failure rate of one half is noticed in
15 of 16 cases so; a rate of 90 % in a third of them, and nine of ten of their answers are right.
"""

ASKED_QUICK = 5
"""Number of runs where they take no time."""

QUICK_SECONDS = 0.2
"""Time for more than `ASKED_FIRST` runs: too short to be noticed."""

ASKED_EXACT = 2
"""Number of runs where chance shows in the answer itself, or each answer is a time limit."""

ASKED_PASSING = 5
"""Number of passing runs until a given case is believed to pass, without a compile."""

ASKED_PASSING_COMPILE = 3
"""The same where each answer is a compile."""

ASKED_FLAKY = 20
"""Number of runs once two answers differ."""

LEAST_RATE = 0.1
"""A case that fails less often cannot be reduced: each question would take over fifty runs."""


@document
@dataclass(frozen=True, slots=True)
class FailureRate:
    """How often the given case fails."""

    asked: int
    failed: int

    @property
    def rate(self) -> float:
        return self.failed / self.asked

    @property
    def is_steady(self) -> bool:
        """Whether all answers were the same."""
        return self.failed in (0, self.asked)

    @property
    def is_workable(self) -> bool:
        """Whether it fails often enough to be reduced."""
        return self.rate >= LEAST_RATE

    def __str__(self) -> str:
        return f"{self.failed} of {self.asked} runs"


@document
@dataclass(frozen=True, slots=True)
class Flakiness:
    """The error bound of a reduction with a flaky oracle.

    Attributes:
        given: Failure rate of the case at the start: the given one, or the smallest one of the
            first search if its answers were the first to differ.
        error_probability: Upper bound for some candidate wrongly believed to pass.
    """

    given: FailureRate
    error_probability: float
    most_runs: int

    def __str__(self) -> str:
        return (
            f"it fails in {self.given}, so each candidate was run up to {self.most_runs} times; "
            f"with a probability of at most {self.error_probability:.2g} a candidate with that "
            "rate was taken for passing"
        )


def rate_of(answers: Sequence[Judgement], again: Callable[[int], Judgement]) -> FailureRate:
    """Return how often a case fails; a steady oracle is asked little.

    Cases: 1. verdicts differ: `ASKED_FLAKY` runs; 2. two answers are wrong numbers, equal to the
    last digit, or both are time limits: steady; 3. `ASKED_FIRST` answers with the same verdict, up
    to `ASKED_QUICK` of them within `QUICK_SECONDS`: steady. The message of an exception is the same
    each time, so it does not rule out chance.

    Args:
        again: Asks once more; gets the number of answers so far.
    """
    found, started = list(answers), time.monotonic()
    while not _is_enough(found, time.monotonic() - started):
        found.append(again(len(found)))
    return FailureRate(len(found), sum(map(_fails, found)))


def ask_until_failing(oracle: Oracle, question: Question, most: int) -> list[Judgement]:
    """Return the runs of a case that passed at first, up to the first that does not pass."""
    answers: list[Judgement] = []
    while len(answers) < most:
        answers.append(oracle.ask(replace(question, run=len(answers) + 1)))
        if answers[-1].verdict is not Verdict.FLAKY and not answers[-1].is_no_failure:
            break
    return answers


def _is_enough(answers: Sequence[Judgement], seconds: float) -> bool:
    if len({_fails(answer) for answer in answers}) > 1:
        return len(answers) >= ASKED_FLAKY
    if len(answers) >= ASKED_EXACT and all(map(_tells_all, answers)):
        return len({answer.signature for answer in answers}) == 1 or len(answers) >= ASKED_FIRST
    is_late = seconds >= QUICK_SECONDS or len(answers) >= ASKED_QUICK
    return is_late and len(answers) >= ASKED_FIRST


def _tells_all(judgement: Judgement) -> bool:
    """Return whether an answer holds measured errors of results; or takes as long as the limit."""
    signature = judgement.signature
    if signature is None:
        return False
    has_numbers = any(letter.isdigit() for letter in signature.message)
    return signature.is_cut_off or (signature.is_numeric and has_numbers)


def _fails(judgement: Judgement) -> bool:
    return judgement.verdict is Verdict.REPRODUCES


_NEXT = "next: seed its random values, or make the failure more likely first"


def check_workable(rate: FailureRate, name: str, next_step: str = _NEXT) -> None:
    """Refuse a failure rate that is too low.

    Raises:
        DoesNotReproduce: It is.
    """
    if not rate.is_workable:
        raise DoesNotReproduce(
            f"{name} is flaky: it fails in {rate} only and cannot be reduced\n{next_step}"
        )


def runs_needed(rate: float, number: int, error: float = ERROR) -> int:
    """Return after how many passing runs the candidate `number`, from 1, is believed to pass."""
    share = error / (number * (number + 1))
    return 1 if rate >= 1 else max(1, math.ceil(math.log(share) / math.log(1 - rate)))


@dataclass(slots=True)
class RepeatedRuns:
    """The layer that asks about a candidate until it fails, or has passed often enough.

    Attributes:
        inner: The layer below, which answers by chance; `Question.run` numbers the runs.
        asked: Number of answered questions, of this process and earlier ones.
        error: Probability that some candidate that passed would have failed.
    """

    inner: Oracle
    rate: FailureRate
    asked: int = 0
    error: float = 0.0
    most_runs: int = 0

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Judge a case; an invalid or hanging case takes one run.

        The deadline is that of one run.
        """
        answer, last = None, Judgement(Verdict.PASSES)
        for number in range(1, self._runs + 1):
            last = self.inner.ask(replace(question, run=number), known_only=known_only)
            if last.verdict in (Verdict.REPRODUCES, Verdict.INVALID, Verdict.TIMEOUT):
                return last
            answer = last if last.verdict is Verdict.DIFFERENT else answer
        return answer or last

    def count(self, judgement: Judgement) -> None:
        """Count an answer, new or remembered: each has its share of the error."""
        runs = self._runs
        self.asked, self.most_runs = self.asked + 1, runs
        if judgement.verdict in (Verdict.DIFFERENT, Verdict.FLAKY) or judgement.is_no_failure:
            self.error += (1 - self.rate.rate) ** runs

    @property
    def _runs(self) -> int:
        return runs_needed(self.rate.rate, self.asked + 1)

    @property
    def flakiness(self) -> Flakiness:
        """The error bound so far."""
        return Flakiness(self.rate, round(self.error, 6), self.most_runs)
