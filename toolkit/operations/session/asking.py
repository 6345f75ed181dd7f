"""What a reduction asks about a candidate, how often, and where the answers are kept.

1. Nothing chosen, or something to measure: an executor compiles and runs (`SameFailure`).
2. A command or function of the user: it is asked (`CommandOracle`, `FunctionOracle`).

Either is asked about the given case more than once first, and about the smallest one at the end.
One that changes its mind is asked several times about each candidate from then on (`Repeated`).
Each of these runs is in the journal (`EachRun`): no answer is asked for again.

Several questions are asked at once (`ahead.py`) where that cannot change an answer: not for one
that counts its errors, not for a function of the user, and not while time is measured.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.ahead import Ahead, Asker, TimedOracle, asked_ahead
from ctk.toolkit.oracle.cache import fingerprint
from ctk.toolkit.oracle.choice import Choice
from ctk.toolkit.oracle.command import LONGEST_SECONDS, CommandOracle
from ctk.toolkit.oracle.each_run import EachRun
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.function import FunctionOracle
from ctk.toolkit.oracle.memo import Memo
from ctk.toolkit.oracle.noted import Noted
from ctk.toolkit.oracle.patience import Patience, Patient
from ctk.toolkit.oracle.repeated import (
    ASKED_PASSING,
    ASKED_PASSING_COMPILE,
    FailureRate,
    Repeated,
    check_workable,
    rate_of,
)
from ctk.toolkit.oracle.same_failure import SameFailure

Note = Callable[[Case, Judgement], object]


@dataclass(frozen=True, slots=True)
class Asking:
    """What is asked.

    Attributes:
        oracle: Answers, and remembers.
        runs: Asks again; each run has its own answer.
        limit_seconds: Longest that an answer is waited for; None: as long as it takes.
        identity: What names the question in the journal.
        own: The command or function of the user; None where ctk compares.
        with_executor: Makes the oracle that asks another executor; None if no executor is asked.
        repeated: How often it is asked; None for an oracle that always says the same.
        takes_others: Whether what reproduces may show another failure than the given case: its
            answers then say which.
    """

    oracle: TimedOracle
    runs: EachRun
    identity: str
    limit_seconds: float | None = None
    own: CommandOracle | FunctionOracle | None = None
    with_executor: Callable[[Executor], TimedOracle] | None = None
    repeated: Repeated | None = None
    takes_others: bool = False

    @property
    def passing_runs(self) -> int:
        """After how many runs it is believed that a given case does not fail."""
        return ASKED_PASSING if self.own is not None else ASKED_PASSING_COMPILE


def asking_own(run: Operation, choice: Choice) -> Asking:
    """Return the question to a command or function of the user."""
    seconds = run.subject.timeout_seconds
    if choice.function is not None:
        own: CommandOracle | FunctionOracle = FunctionOracle(
            choice.function, choice.words, choice.code
        )
        noted = Noted(own, Memo(run.journal), run.digests, own.identity)
        return Asking(noted, each_run(run, own, own.identity), own.identity, own=own)
    limit = LONGEST_SECONDS if seconds is None else seconds
    own = CommandOracle(choice.command, choice.match, choice.same, limit)
    memo = Memo(run.journal, limit)
    noted = Noted(own, memo, run.digests, own.identity, told=own.remember)
    return Asking(noted, each_run(run, own, own.identity, limit), own.identity, limit, own)


def asking_same(run: Operation, same: SameFailure) -> Asking:
    """Return the question whether a candidate fails as a case did."""
    fresh = replace(same, executor=run.subject.executor)
    rule = f"{same.rule} {same.cause} {same.base} {same.case.signature}"
    is_timed = same.case.signature is not None and same.case.signature.kind == "slow"
    identity = f"same failure {rule}"
    return Asking(
        same,
        each_run(run, fresh, identity, run.executor.limit_seconds),
        identity,
        run.executor.limit_seconds,
        with_executor=None if is_timed else lambda executor: replace(same, executor=executor),
        takes_others=same.rule in ("type", "any"),
    )


def each_run(
    run: Operation,
    ask: Callable[[Case, float | None], Judgement],
    identity: str,
    limit: float | None = None,
) -> EachRun:
    """Return who asks a question again, run after run; each answer is in the journal.

    Args:
        run: The operation.
        ask: Asks, and remembers nothing.
        identity: What names the question.
        limit: Longest that a run is waited for, in seconds; None: as long as it takes.
    """
    return EachRun(ask, Memo(run.journal, limit, run.executor.memory), run.digests, identity)


def steadied(run: Operation, asking: Asking, given: Case, answers: list[Judgement]) -> Asking:
    """Return the question as often as it must be asked, for what it says of one case.

    Args:
        run: Remembers how often the case fails.
        asking: The question.
        given: A case that fails, at least once.
        answers: What was answered about it already, one of them that it fails.

    Raises:
        DoesNotReproduce: It fails too rarely to be reduced.
    """
    key = f"{asking.identity}/{fingerprint(given, run.digests)}"
    rate = run.journal.recall(FailureRate, key)
    if rate is None:
        rate = rate_of(answers, lambda number: asking.runs(given, number))
        run.journal.note(key, rate)
    if rate.is_steady:
        return asking
    check_workable(rate, given.name)
    run.say(f"{given.name} fails in {rate} only: each question takes several")
    repeated = Repeated(asking.runs, rate)
    identity = f"{rate.failed}/{rate.asked} {asking.identity}"
    memo = Memo(run.journal, asking.limit_seconds, run.executor.memory)
    noted = Noted(repeated, memo, run.digests, identity, told=repeated.note)
    failing = next(each for each in answers if each.verdict is Verdict.REPRODUCES)
    memo.answered(f"{identity}/{fingerprint(given, run.digests)}", None, lambda: failing)
    return replace(asking, oracle=noted, repeated=repeated)


@contextmanager
def asked(run: Operation, asking: Asking) -> Generator[Patient]:
    """Return the oracle for a search; it may ask several questions at once until the block ends.

    Its limits begin anew: they follow from the answers of that search.
    """
    patience, is_by_size = Patience(asking.limit_seconds), asking.own is None
    with _asked_within(run, asking) as oracle:
        yield Patient(oracle, patience, is_by_size)


@contextmanager
def _asked_within(run: Operation, asking: Asking) -> Generator[TimedOracle]:
    if asking.repeated is None and asking.with_executor is not None:
        with asked_ahead(run.executor, asking.with_executor, run.digests) as oracle:
            yield oracle
        return
    jobs = len(run.executor.members)
    is_command = isinstance(asking.own, CommandOracle)
    if asking.repeated is not None or not is_command or jobs == 1:
        yield asking.oracle
        return
    askers = [Asker(asking.oracle, Unstoppable()) for _ in range(jobs)]
    with Ahead(askers, asking.oracle.recall, run.digests) as ahead:
        yield ahead


class Unstoppable(InProcess):
    """Stands for a command that runs: one that is not wanted any more is let finish."""


@dataclass(frozen=True, slots=True)
class Watched:
    """An oracle whose answers are shown to somebody, remembered ones too.

    Attributes:
        oracle: Answers.
        note: Is shown each case with its answer.
    """

    oracle: Patient
    note: Note

    @property
    def jobs(self) -> int:
        """How many questions may be under way at once."""
        return self.oracle.jobs

    def __call__(self, case: Case) -> Judgement:
        """Judge a case."""
        return self._noted(case, self.oracle(case))

    def recall(self, case: Case) -> Judgement | None:
        """Return the remembered answer, if there is one."""
        known = self.oracle.recall(case)
        return known and self._noted(case, known)

    def anticipate(self, cases: Sequence[Case]) -> None:
        """Take note of what will most likely be asked next."""
        self.oracle.anticipate(cases)

    def is_open(self, answer: Judgement) -> bool:
        """Return whether an answer is that a short limit has run out."""
        return self.oracle.is_open(answer)

    def decide(self, case: Case) -> Judgement:
        """Judge a case with the whole limit."""
        return self._noted(case, self.oracle.decide(case))

    def recall_decided(self, case: Case) -> Judgement | None:
        """Return what `decide` would, if it is known of an earlier run."""
        known = self.oracle.recall_decided(case)
        return known and self._noted(case, known)

    def _noted(self, case: Case, answer: Judgement) -> Judgement:
        self.note(case, answer)
        return answer
