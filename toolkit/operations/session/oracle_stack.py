"""The oracle of one reduction, built as one stack (`toolkit/oracle/__init__.py`).

The given case gets several runs first, and the smallest one at the end. Where answers differ, each
candidate gets several runs from then on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.oracle.answers.journaled import Journaled, Memo, journal_executor
from ctk.toolkit.oracle.deadlines import Deadlines, TimeLimits
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.oracle.questions.choice import Choice
from ctk.toolkit.oracle.questions.same_failure import SameFailure
from ctk.toolkit.oracle.questions.user_command import LONGEST_SECONDS, CommandOracle
from ctk.toolkit.oracle.questions.user_function import FunctionOracle
from ctk.toolkit.oracle.repeated_runs import (
    ASKED_PASSING,
    ASKED_PASSING_COMPILE,
    FailureRate,
    RepeatedRuns,
    check_workable,
    rate_of,
)
from ctk.toolkit.oracle.speculation import Lane, Speculative, speculating

Judge = SameFailure | CommandOracle | FunctionOracle
"""Reads the verdict: ctk compares, or a command or function of the user decides."""


@dataclass(frozen=True, slots=True)
class OracleStack:
    """The oracle of one reduction, from the judge to the layer that remembers its verdicts.

    Attributes:
        oracle: Answers each question once.
        runs: Answers a question again; each run has its own answer.
        identity: Names the judge in the journal.
        repeated: Repeats each question; None for an oracle whose answers are steady.
    """

    run: Operation
    judge: Judge
    oracle: Oracle
    runs: Oracle
    identity: str
    limit_seconds: float | None = None
    repeated: RepeatedRuns | None = None

    @property
    def own(self) -> CommandOracle | FunctionOracle | None:
        """The command or function of the user; None where ctk compares."""
        return None if isinstance(self.judge, SameFailure) else self.judge

    @property
    def accepts_other_failures(self) -> bool:
        """Whether a candidate that reproduces may show another failure than the given case."""
        return isinstance(self.judge, SameFailure) and self.judge.rule in ("type", "any")

    @property
    def passing_runs(self) -> int:
        """Number of passing runs after which a given case is believed to pass."""
        return ASKED_PASSING if self.own is not None else ASKED_PASSING_COMPILE


def stack_for(run: Operation, judge: Judge, rate: FailureRate | None = None) -> OracleStack:
    """Build the oracle of a reduction; `searching` puts the layers of one search on top.

    The layers, from the question of the reducer down to the process that compiles. With a `rate`,
    those in brackets repeat each question, and nothing is speculative:

        Answers             one search: each candidate once, counted by the Ledger
          Deadlines         a short limit for each candidate, as the last answers show
            Speculative     lanes that work on the likely next questions
        [   Journaled       the verdict over all runs                                       ]
        [     RepeatedRuns  as many runs as the failure rate asks for                       ]
        [       Journaled   the verdict of each run                                         ]
              SameFailure             or  Journaled, CommandOracle
                Journaled             or  Journaled, FunctionOracle
                  Executor            in process, child, pool, cluster

    Args:
        rate: How often the given case fails, for an oracle whose answers differ.
    """
    executor = run.subject.executor
    if isinstance(judge, SameFailure):
        limit = executor.limit_seconds
        identity = f"same failure {judge.rule} {judge.cause} {judge.base} {judge.case.signature}"
        memo = Memo(run.journal, limit, executor.memory)
        oracle = replace(judge, inner=run.oracle)
        runs = Journaled(replace(judge, inner=executor), memo, run.digests, identity)
    else:
        is_command = isinstance(judge, CommandOracle)
        limit, identity = (judge.limit_seconds if is_command else None), judge.identity
        memo = Memo(run.journal, limit, executor.memory)
        oracle = runs = Journaled(judge, memo, run.digests, identity)
        if is_command:
            oracle = runs = replace(runs, on_answer=judge.remember)
    if rate is None:
        return OracleStack(run, judge, oracle, runs, identity, limit)
    repeated = RepeatedRuns(runs, rate)
    identity = f"{rate.failed}/{rate.asked} {identity}"
    oracle = Journaled(repeated, memo, run.digests, identity, on_answer=repeated.count)
    return OracleStack(run, judge, oracle, runs, identity, limit, repeated)


def own_oracle(run: Operation, choice: Choice) -> CommandOracle | FunctionOracle:
    """Return the oracle that asks the command or function of the user."""
    if choice.function is not None:
        return FunctionOracle(choice.function, choice.words, choice.code)
    seconds = run.subject.timeout_seconds
    limit = LONGEST_SECONDS if seconds is None else seconds
    return CommandOracle(choice.command, choice.match, choice.same, limit)


def with_repeats(stack: OracleStack, given: Case, answers: list[Judgement]) -> OracleStack:
    """Return the stack that repeats each question, if the answers about one case differ.

    The failure rate of the case is in the journal.

    Args:
        given: A case that fails, at least once.
        answers: Its answers so far, one of them `reproduces`.

    Raises:
        DoesNotReproduce: The case fails too rarely to be reduced.
    """
    run, case = stack.run, fingerprint(given, stack.run.digests)
    key = f"{stack.identity}/{case}"
    rate = run.journal.recall(FailureRate, key)
    if rate is None:
        rate = rate_of(answers, lambda number: stack.runs.ask(Question(given, run=number)))
        run.journal.note(key, rate)
    if rate.is_steady:
        return stack
    check_workable(rate, given.name)
    run.say(f"{given.name} fails in {rate} only: each question takes several")
    repeating = stack_for(run, stack.judge, rate)
    assert isinstance(repeating.oracle, Journaled)
    key = repeating.oracle.key_of(Question(given))
    if repeating.oracle.memo.recall(key) is None:
        failing = next(answer for answer in answers if answer.verdict is Verdict.REPRODUCES)
        repeating.oracle.memo.note(key, failing)
    return repeating


@contextmanager
def searching(stack: OracleStack) -> Generator[Deadlines]:
    """Put the layers of one search on a stack: its lanes run, and its limits hold, until the end.

    Several questions are asked at the same time only where that cannot change an answer: not if
    errors are counted, not for a function of the user, and not while time is measured.
    """
    with _speculating(stack) as inner:
        yield Deadlines(inner, TimeLimits(stack.limit_seconds), is_by_size=stack.own is None)


@contextmanager
def _speculating(stack: OracleStack) -> Generator[Oracle]:
    run, judge = stack.run, stack.judge
    executor, journal, digests = run.subject.executor, run.journal, run.digests
    if stack.repeated is not None or isinstance(judge, FunctionOracle):
        yield stack.oracle
    elif isinstance(judge, CommandOracle):
        if len(executor.members) == 1:
            yield stack.oracle
            return
        lanes = [Lane(stack.oracle, Unstoppable()) for _ in executor.members]
        with Speculative(lanes, digests) as speculative:
            yield speculative
    elif judge.case.signature is not None and judge.case.signature.is_timed:
        yield stack.oracle
    else:
        with speculating(
            executor,
            lambda member: replace(judge, inner=journal_executor(member, journal, digests)),
            digests,
        ) as oracle:
            yield oracle


class Unstoppable(InProcess):
    """Stands for a running command: an unwanted one is left to finish."""
