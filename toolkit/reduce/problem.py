"""The state of one reduction: the best case so far, every answer, counters and the budget.

`Problem` is the only mutable object of the reducer, and `Problem.ask` the only place where an
oracle is asked.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ctk.compiler.errors import DoesNotReproduce
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.cache import Cache, fingerprint
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.size import call_nodes, is_smaller

Oracle = Callable[[Case], Judgement]


class OutOfBudget(Exception):
    """No question is left; the message says of what: `questions` or `seconds`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a reduction may use; None is without limit."""

    questions: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What `on_progress` sees after each answer."""

    questions: int
    cached: int
    seconds: float
    call_nodes: int
    call_nodes_before: int
    step: str
    verdict: Verdict
    budget: Budget


@dataclass(slots=True)
class StepStatistics:
    """What one step has cost and brought.

    Attributes:
        questions: How often the oracle was asked.
        useful: How many answers gave a smaller case.
        cached: How often an answer was remembered instead.
        not_applicable: Edits that make no sense for the case that they were made for.
        not_smaller: Edits whose result the order (`size.py`) does not call smaller. A step that has
            nothing but these sees something that the order does not.
    """

    questions: int = 0
    useful: int = 0
    cached: int = 0
    not_applicable: int = 0
    not_smaller: int = 0


@dataclass(slots=True)
class Problem:
    """One reduction in progress.

    Attributes:
        best: The smallest case so far that reproduces.
        oracle: Judges a case; only `Verdict.REPRODUCES` counts as failing.
        budget: What may be used.
        on_progress: Called after each answer of the oracle.
        on_improvement: Called with each new best case, before the search goes on (a caller saves
            it).
        cache: Every answer so far.
        step: Name of the step at work.
    """

    best: Case
    oracle: Oracle
    budget: Budget = Budget()
    on_progress: Callable[[Progress], None] | None = None
    on_improvement: Callable[[Case], None] | None = None
    cache: Cache = field(default_factory=Cache)
    step: str = "start"
    questions: int = 0
    statistics: dict[str, StepStatistics] = field(default_factory=dict[str, StepStatistics])
    started: float = field(default_factory=time.monotonic)
    nodes_before: int = -1
    _facts: tuple[Case, Facts] | None = None

    def __post_init__(self) -> None:
        self.nodes_before = call_nodes(self.best)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def facts(self) -> Facts:
        """The facts of the best case, computed once for each."""
        if self._facts is None or self._facts[0] is not self.best:
            self._facts = (self.best, facts_of(self.best))
        return self._facts[1]

    def check_start(self) -> None:
        """Make sure that there is something to reduce.

        Raises:
            DoesNotReproduce: The oracle says anything but `reproduces` of the given case.
        """
        judgement = self._judge(self.best)
        if judgement.verdict is not Verdict.REPRODUCES:
            seen = f" ({judgement.signature})" if judgement.signature else ""
            detail = f": {judgement.detail}" if judgement.detail else ""
            raise DoesNotReproduce(
                f"case {self.best.name} with target {self.best.target} does not show the failure "
                f"that is to be reduced: the oracle says {judgement.verdict.value}{seen}{detail}\n"
                "See what it does now with `ctk repro CASE`; one that comes and goes is `flaky`."
            )

    def consider(self, candidate: Case | None) -> bool | None:
        """Ask about a candidate and keep it if it fails in the same way.

        Returns:
            Whether it reproduces; None if it does not exist or is not smaller than the best
            (nothing was asked).
        """
        if candidate is None or _is_empty(candidate):
            self._counts.not_applicable += 1
            return None
        if not is_smaller(candidate, self.best):
            self._counts.not_smaller += 1
            return None
        judgement = self._judge(candidate)
        if judgement.verdict is not Verdict.REPRODUCES:
            return False
        self.best = candidate
        self._counts.useful += 1
        if self.on_improvement:
            self.on_improvement(candidate)
        return True

    def never_smaller(self) -> tuple[str, ...]:
        """Return the steps that made cases, none of them smaller: the order misses their idea."""
        return tuple(
            name
            for name, counts in self.statistics.items()
            if counts.not_smaller and not counts.questions + counts.cached
        )

    @property
    def _counts(self) -> StepStatistics:
        return self.statistics.setdefault(self.step, StepStatistics())

    def _judge(self, case: Case) -> Judgement:
        key = fingerprint(case)
        known = self.cache.find(key)
        if known is not None:
            self._counts.cached += 1
            return known
        judgement = self._ask(case)
        self.cache.add(key, judgement)
        return judgement

    def _ask(self, case: Case) -> Judgement:
        if self.budget.questions is not None and self.questions >= self.budget.questions:
            raise OutOfBudget("questions")
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            raise OutOfBudget("seconds")
        self.questions += 1
        self._counts.questions += 1
        judgement = self.oracle(case)
        if self.on_progress:
            self.on_progress(self._progress(case, judgement.verdict))
        return judgement

    def _progress(self, case: Case, verdict: Verdict) -> Progress:
        smallest = case if verdict is Verdict.REPRODUCES else self.best
        return Progress(
            questions=self.questions,
            cached=self.cache.hits,
            seconds=self.seconds,
            call_nodes=call_nodes(smallest),
            call_nodes_before=self.nodes_before,
            step=self.step,
            verdict=verdict,
            budget=self.budget,
        )


def _is_empty(case: Case) -> bool:
    """Return whether nothing is left to compile: Dynamo calls no backend for such a graph."""
    return call_nodes(case) == 0
